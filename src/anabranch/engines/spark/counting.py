"""Count windows in Spark's Python workers: one kernel a group, its snapshot between batches with Spark.

Spark passes rows here as pandas frames, which know no null beside a number and no timestamp before 1677. So
every column goes as a number, a truth value or an object, and whether it is null in a column of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.graph import CountAggregate, Graph
from anabranch.streams.batch import Batch, ints, with_ids
from anabranch.streams.punctuation import BEGINNING
from anabranch.types import Column, arrow_schema

IDS = (Column("_ts", "bigint"), Column("_hi", "bigint"), Column("_lo", "bigint"))
STATE = "snapshot binary"

_PLAIN = {
    "boolean": "boolean",
    "tinyint": "bigint",
    "smallint": "bigint",
    "int": "bigint",
    "bigint": "bigint",
    "float": "double",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "bigint",
    "timestamp": "bigint",
}


def plain(column: Column) -> str:
    """The type in which a column goes through pandas."""
    return _PLAIN[column.type]


def plain_ddl(columns: Sequence[Column]) -> str:
    return ", ".join(f"v{i} {plain(column)}, n{i} boolean" for i, column in enumerate((*IDS, *columns)))


def count_windows(
    key: tuple[Any, ...], frames: Iterator[Any], state: Any, operator: CountAggregate, graph: bytes
) -> Iterator[Any]:
    """The windows that end in ``frames``, which hold rows of one group, none before those of earlier calls
    and all that there are up to their last one."""
    # Here and not above: it compiles, and what does not count windows shall not wait for that.
    from anabranch.operators.count_aggregate import CountAggregateKernel  # noqa: PLC0415

    whole = Graph.from_json(graph)
    kernel = CountAggregateKernel(operator, whole)
    if state.exists:
        kernel.restore(bytes(state.get[0]))
    kernel.start((BEGINNING,))
    columns = whole.schema(operator.input)
    last = BEGINNING
    for frame in frames:
        rows = _rows(frame, columns)
        last = max(last, int(ints(rows.column(0)).max()))
        kernel.process(0, rows)
    made = kernel.punctuate(0, last)
    state.update((kernel.snapshot(),))
    if made is not None:
        yield _frame(made, (*IDS, *whole.schema(operator.name)))


def _rows(frame: Any, columns: tuple[Column, ...]) -> Batch:
    schema = with_ids(arrow_schema(columns))
    arrays = [
        _array(frame[f"v{i}"], frame[f"n{i}"].to_numpy(dtype=bool), plain(column), field.type)
        for i, (column, field) in enumerate(zip((*IDS, *columns), schema, strict=True))
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Any, null: Any, kind: str, type_: pa.DataType) -> pa.Array:
    if kind in ("string", "binary"):
        return pa.array([None if n else v for v, n in zip(values, null, strict=True)], type_)
    array = pa.array(values.to_numpy(), mask=null, from_pandas=False)
    if pa.types.is_timestamp(type_):
        return array.cast(pa.int64()).view(type_)
    return array.cast(pa.int32()).view(type_) if pa.types.is_date(type_) else array.cast(type_)


def _frame(batch: Batch, columns: Sequence[Column]) -> Any:
    # As above: it takes 50 MB of every process that loads it.
    import pandas as pd  # noqa: PLC0415

    made = {}
    for i, (array, column) in enumerate(zip(batch.columns, columns, strict=True)):
        made[f"v{i}"], made[f"n{i}"] = _values(array, plain(column))
    return pd.DataFrame(made)


def _values(array: pa.Array, kind: str) -> tuple[Any, Any]:
    null = array.is_null().to_numpy(zero_copy_only=False)
    if kind in ("string", "binary"):
        values = np.empty(len(array), object)
        values[:] = array.to_pylist()
        return values, null
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    elif pa.types.is_date(array.type):
        array = array.view(pa.int32())
    filled = array.fill_null(False if pa.types.is_boolean(array.type) else 0)
    dtype = {"bigint": np.int64, "double": np.float64, "boolean": np.bool_}[kind]
    return filled.to_numpy(zero_copy_only=False).astype(dtype), null
