"""CountAggregate: in a batch, rows are numbered in canonical order and folded natively.

A stream is first put in order by Spark, natively: rows of one instant wait in a window of their own until the
watermark has passed it. What is released so is complete, and each group's kernel takes it in, with its
snapshot as the state that Spark keeps for the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from anabranch.engines.spark.counting import IDS, STATE, count_windows, plain, plain_ddl
from anabranch.engines.spark.forms.aggregate import exact
from anabranch.engines.spark.forms.context import Context
from anabranch.engines.spark.forms.event_time import EVENT, event
from anabranch.engines.spark.forms.ids import long, window_ids
from anabranch.engines.spark.forms.stateless import with_ts
from anabranch.nodes import CountAggregate
from anabranch.schemas import find
from anabranch.streams.batch import HI, LO, TS
from anabranch.types import FRACTIONAL, Column


def count_aggregate(operator: CountAggregate, inputs: Sequence[Any], context: Context) -> Any:
    form = _stream if context.streaming else _batch
    return form(operator, inputs[0], context)


def _stream(operator: CountAggregate, rows: Any, context: Context) -> Any:
    graph = context.graph
    columns = graph.schema(operator.input)
    by = [find(name, columns, operator.name).name for name in operator.by]
    # A watermark is whole milliseconds: it has passed an instant when it has the next whole one.
    ts = F.unix_micros(TS)
    due = ts + F.pmod(-ts, long(1_000))
    row = F.struct(TS, HI, LO, *(F.col(column.name) for column in columns))
    released = (
        rows.select("*", event(due))
        .groupBy(EVENT)
        .agg(F.collect_list(row).alias("_rows"))
        .select(F.inline("_rows"))
    )
    packed = released.select(
        *window_ids(operator.name, long(0), by, prefix="_group"), *_packed((*IDS, *columns))
    )
    function = partial(count_windows, operator=operator, graph=graph.to_json())
    results = (*IDS, *graph.schema(operator.name))
    counted = packed.groupBy("_group_hi", "_group_lo").applyInPandasWithState(
        function, plain_ddl(results[len(IDS) :]), STATE, "append", "NoTimeout"
    )
    return counted.select(*_unpacked(results))


def _packed(columns: Sequence[Column]) -> list[Any]:
    """See :mod:`..counting`."""
    values = []
    for i, column in enumerate(columns):
        value = F.col(column.name)
        if column.type == "timestamp" or column.name == TS:
            value = F.unix_micros(value)
        elif column.type == "date":
            value = F.unix_date(value)
        kind = plain(column)
        value = value.cast(kind)
        if kind not in ("string", "binary"):
            value = F.coalesce(value, F.lit(False) if kind == "boolean" else F.lit(0).cast(kind))
        values += [value.alias(f"v{i}"), F.isnull(column.name).alias(f"n{i}")]
    return values


def _unpacked(columns: Sequence[Column]) -> list[Any]:
    made = []
    for i, column in enumerate(columns):
        value = F.col(f"v{i}")
        if column.type == "timestamp" or column.name == TS:
            value = F.timestamp_micros(value)
        elif column.type == "date":
            value = F.date_from_unix_date(value.cast("int"))
        elif column.type in FRACTIONAL:
            # To pandas, NaN and null are one.
            value = F.coalesce(value, F.lit(float("nan"))).cast(column.type)
        else:
            value = value.cast(column.type)
        made.append(F.when(~F.col(f"n{i}"), value).alias(column.name))
    return made


def _batch(operator: CountAggregate, rows: Any, context: Context) -> Any:
    graph = context.graph
    columns = graph.schema(operator.input)
    by = [find(name, columns, operator.name).name for name in operator.by]
    order = Window.partitionBy(*by).orderBy(TS, *(c.name for c in columns), HI, LO)
    count, every = long(operator.count), long(operator.every)
    number = F.col("_number")
    # the windows, by the number of their last tuple, that tuple ``number`` belongs to
    first = F.greatest(count, count + F.ceil((number - count) / every).cast("bigint") * every)
    ended = (
        rows.withColumn("_number", F.row_number().over(order).cast("bigint"))
        .withColumn("_last", first)
        .filter(F.col("_last") < number + count)
        .withColumn("_last", F.explode(F.sequence(F.col("_last"), number + count - long(1), every)))
    )
    results = graph.schema(operator.name)[2 + len(by) :]
    folded = [
        F.expr(exact(expression)).cast(column.type).alias(column.name)
        for (_, expression), column in zip(operator.aggregates, results, strict=True)
    ]
    return (
        with_ts(ended)
        .groupBy("_last", *by)
        .agg(
            *folded,
            F.count(F.lit(1)).alias("_members"),
            F.min(TS).alias("window_start"),
            F.max(TS).alias("window_end"),
        )
        .filter(F.col("_members") == count)
        .select(
            F.col("window_end").alias(TS),
            *window_ids(operator.name, F.col("_last"), by),
            "window_start",
            "window_end",
            *by,
            *(column.name for column in results),
        )
    )
