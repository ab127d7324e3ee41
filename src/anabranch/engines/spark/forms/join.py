"""Join: a stream-stream join of Spark's, whose state the watermark evicts.

Without ``on`` there is no equality, which Spark demands: the left side is divided at random into ``salts``
parts and the right side goes to all of them, so that each pair meets in exactly one. The salt is there in any
case: a key that the optimizer sees to be constant is no equality either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import functions as F

from anabranch.engines.spark.forms.context import Context
from anabranch.engines.spark.forms.event_time import EVENT, event
from anabranch.engines.spark.forms.ids import ids, long
from anabranch.nodes import Join
from anabranch.schemas import find
from anabranch.streams.batch import HI, LO, TS


def join(operator: Join, inputs: Sequence[Any], context: Context) -> Any:
    graph = context.graph
    left, right = graph.schema(operator.left), graph.schema(operator.right)
    ours = [find(name, left, operator.name).name for name in operator.on]
    theirs = [find(name, right, operator.name).name for name in operator.on]
    salts = 1 if operator.on else context.salts
    one = _side(inputs[0], "l", [c.name for c in left]).withColumn("l_salt", _part(salts, "l"))
    other = _side(inputs[1], "r", [c.name for c in right])
    if salts > 1:
        parts = F.explode(F.sequence(long(0), long(salts - 1)))
        other = other.withColumn("r_salt", parts)
    else:
        other = other.withColumn("r_salt", _part(1, "r"))
    near = f"interval {operator.within} microseconds"
    together = [
        F.col("l_salt") == F.col("r_salt"),
        *(F.col(f"l__{a}") == F.col(f"r__{b}") for a, b in zip(ours, theirs, strict=True)),
        F.col(f"l{EVENT}") > F.col(f"r{EVENT}") - F.expr(near),
        F.col(f"l{EVENT}") < F.col(f"r{EVENT}") + F.expr(near),
    ]
    sources = [f"l__{c.name}" for c in left] + [f"r__{c.name}" for c in right if c.name not in theirs]
    names = [c.name for c in graph.schema(operator.name)]
    pairs = one.join(other, together, "inner").select(
        F.greatest(F.col(f"l{TS}"), F.col(f"r{TS}")).alias(TS),
        *ids(*(F.col(f"{side}{half}") for side in "lr" for half in (HI, LO))),
        *(F.col(source).alias(name) for source, name in zip(sources, names, strict=True)),
    )
    return pairs if operator.where is None else pairs.filter(F.expr(operator.where))


def _side(rows: Any, side: str, names: list[str]) -> Any:
    """The rows with every column's name made unlike all of the other side's."""
    return rows.select(
        event(F.unix_micros(TS), f"{side}{EVENT}"),
        *(F.col(name).alias(f"{side}{name}") for name in (TS, HI, LO)),
        *(F.col(name).alias(f"{side}__{name}") for name in names),
    )


def _part(salts: int, side: str) -> Any:
    return F.pmod(F.xxhash64(f"{side}{HI}", f"{side}{LO}"), long(salts))
