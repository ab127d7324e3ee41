"""The forms run on whole tables: what a streaming run must come to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from anabranch.engines.spark.compile import compile_operators
from anabranch.engines.spark.forms import Context
from anabranch.engines.spark.user_code import conform
from anabranch.graph import Graph
from anabranch.streams.batch import Batch, concat, with_ids
from anabranch.types import arrow_schema


def batch_streams(spark: Any, graph: Graph, sources: Mapping[str, Batch], salts: int = 1) -> dict[str, Batch]:
    """Every stream that operators yield, ids included, in any order."""
    frames = {
        name: spark.createDataFrame(pa.Table.from_batches([rows]), _ddl(graph, name))
        for name, rows in sources.items()
    }
    made = compile_operators(graph.order(), frames, Context(graph, {}, salts, streaming=False))
    return {name: _collect(frame, with_ids(arrow_schema(graph.schema(name)))) for name, frame in made.items()}


def _ddl(graph: Graph, stream: str) -> str:
    columns = ", ".join(f"`{column.name}` {column.type}" for column in graph.schema(stream))
    return f"_ts timestamp, _hi bigint, _lo bigint, {columns}"


def _collect(frame: Any, schema: pa.Schema) -> Batch:
    batches = frame.toArrow().to_batches()
    if not batches:
        return pa.RecordBatch.from_pylist([], schema)
    return conform(concat(batches), schema)
