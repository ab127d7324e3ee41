"""Custom, the function form: user Python in Arrow batches; the ids are Spark's own expressions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark.sql import functions as F

from anabranch.engines.spark.forms.context import Context
from anabranch.engines.spark.forms.ids import ids
from anabranch.engines.spark.user_code import ORDINAL, apply_function
from anabranch.nodes import Custom
from anabranch.streams.batch import HI, LO, TS


def custom(operator: Custom, inputs: Sequence[Any], context: Context) -> Any:
    columns = context.graph.schema(operator.input)
    function = partial(apply_function, operator=operator, columns=columns, reports=context.reports)
    names = [column.name for column in operator.columns]
    yielded = ", ".join(f"`{column.name}` {column.type}" for column in operator.columns)
    rows = inputs[0].select(TS, HI, LO, *(column.name for column in columns))
    made = rows.mapInArrow(function, f"{TS} timestamp, {HI} bigint, {LO} bigint, {ORDINAL} bigint, {yielded}")
    return made.select(TS, *ids(F.col(HI), F.col(LO), F.col(ORDINAL)), *names)
