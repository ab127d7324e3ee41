"""Filter, Map and Union: a row by itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.sql import functions as F

from anabranch.engines.spark.forms.context import Context
from anabranch.engines.spark.forms.ids import ids, long
from anabranch.nodes import Filter, Map, Union
from anabranch.streams.batch import HI, LO, TS


def with_ts(rows: Any) -> Any:
    """Lets expressions name the tuple's own timestamp."""
    return rows.withColumn("ts", F.col(TS))


def filter_(operator: Filter, inputs: Sequence[Any], context: Context) -> Any:
    return with_ts(inputs[0]).filter(F.expr(operator.predicate)).drop("ts")


def map_(operator: Map, inputs: Sequence[Any], context: Context) -> Any:
    columns = context.graph.schema(operator.name)
    made = [
        F.expr(expression).cast(column.type).alias(column.name)
        for (_, expression), column in zip(operator.columns, columns, strict=True)
    ]
    return with_ts(inputs[0]).select(TS, HI, LO, *made)


def union(operator: Union, inputs: Sequence[Any], context: Context) -> Any:
    names = [column.name for column in context.graph.schema(operator.name)]
    return reduce(
        lambda one, other: one.union(other),
        (rows.select(TS, *ids(long(port), F.col(HI), F.col(LO)), *names) for port, rows in enumerate(inputs)),
    )
