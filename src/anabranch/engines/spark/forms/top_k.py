"""TopK: of each window the k least by one key, which puts the greatest first; Spark keeps no more than k."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import functions as F

from anabranch.engines.spark.forms.context import Context
from anabranch.engines.spark.forms.event_time import EVENT
from anabranch.engines.spark.forms.ids import window_ids
from anabranch.engines.spark.forms.stateless import with_ts
from anabranch.engines.spark.forms.windows import bounds, end, in_windows
from anabranch.expressions import typecheck
from anabranch.nodes import TopK
from anabranch.streams.batch import HI, LO, TS


def top_k(operator: TopK, inputs: Sequence[Any], context: Context) -> Any:
    columns = context.graph.schema(operator.input)
    names = [column.name for column in columns]
    kind = typecheck(operator.by, columns, operator.name)
    rows = in_windows(inputs[0], operator.window, operator.every, context.silent_until(operator.name))
    scored = with_ts(rows).withColumn("_by", F.expr(operator.by).cast(kind))
    # Ties go to the first in canonical order, which is how Spark compares structs, then by id.
    key = F.struct(*descending("_by", kind), TS, *names, HI, LO)
    best = F.min_by(F.struct(*names), key, operator.k)
    ts, *window = bounds(operator.window)
    rank = F.col("_rank").cast("bigint")
    return (
        scored.groupBy(EVENT)
        .agg(best.alias("_best"))
        .select(EVENT, F.posexplode("_best").alias("_rank", "_row"))
        .select(
            ts,
            *window_ids(operator.name, end(), (), rank),
            *window,
            *(F.col(f"_row.{name}").alias(name) for name in names),
        )
    )


def descending(name: str, kind: str) -> list[Any]:
    """Columns whose ascending order puts the greatest value of column ``name`` first, NaN before all numbers,
    and nulls last."""
    value = F.col(name)
    if kind in ("float", "double"):
        keys = [~F.coalesce(F.isnan(value), F.lit(False)), F.when(~F.isnan(value), -value)]
    elif kind == "boolean":
        keys = [~value]
    elif kind == "timestamp":
        keys = [F.bitwise_not(F.unix_micros(value))]
    elif kind == "date":
        keys = [F.bitwise_not(F.unix_date(value))]
    elif kind in ("string", "binary"):
        # Digits turned around, and an end that is greater than any of them: "ab" comes before "a".
        keys = [F.concat(F.translate(F.hex(value), "0123456789ABCDEF", "FEDCBA9876543210"), F.lit("G"))]
    else:
        keys = [F.bitwise_not(value)]
    return [F.isnull(value).alias("_null"), *(k.alias(f"_key{i}") for i, k in enumerate(keys))]
