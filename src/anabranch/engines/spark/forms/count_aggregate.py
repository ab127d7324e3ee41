"""CountAggregate: in a batch, rows are numbered in canonical order and folded natively.

A stream is first put in order by Spark, natively: rows of one instant wait in a window of their own until the
watermark has passed it. What is released so is complete, and each group's kernel takes it in, with its
snapshot as the state that Spark keeps for the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from anabranch.engines.spark.forms.aggregate import exact
from anabranch.engines.spark.forms.context import Context
from anabranch.engines.spark.forms.ids import long, window_ids
from anabranch.engines.spark.forms.stateless import with_ts
from anabranch.nodes import CountAggregate
from anabranch.schemas import find
from anabranch.streams.batch import HI, LO, TS


def count_aggregate(operator: CountAggregate, inputs: Sequence[Any], context: Context) -> Any:
    if context.streaming:
        from anabranch.engines.spark.forms.count_stream import count_stream

        return count_stream(operator, inputs[0], context)
    graph = context.graph
    columns = graph.schema(operator.input)
    by = [find(name, columns, operator.name).name for name in operator.by]
    order = Window.partitionBy(*by).orderBy(TS, *(c.name for c in columns), HI, LO)
    count, every = long(operator.count), long(operator.every)
    number = F.col("_number")
    # the windows, by the number of their last tuple, that tuple ``number`` belongs to
    first = F.greatest(count, count + F.ceil((number - count) / every).cast("bigint") * every)
    ended = (
        inputs[0]
        .withColumn("_number", F.row_number().over(order).cast("bigint"))
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
