"""Custom with a window: Spark collects each window in canonical order, user Python folds it once it is
whole."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark.sql import functions as F

from anabranch.engines.spark.forms.context import Context
from anabranch.engines.spark.forms.event_time import EVENT
from anabranch.engines.spark.forms.ids import window_ids
from anabranch.engines.spark.forms.windows import bounds, end, in_windows
from anabranch.engines.spark.user_code import MEMBERS, fold_windows
from anabranch.nodes import Custom
from anabranch.schemas import find
from anabranch.streams.batch import HI, LO, TS


def custom_window(operator: Custom, inputs: Sequence[Any], context: Context) -> Any:
    assert operator.window is not None
    graph = context.graph
    columns = graph.schema(operator.input)
    by = [find(name, columns, operator.name) for name in operator.by]
    groups = [column.name for column in by]
    silent_until = context.silent_until(operator.name)
    rows = in_windows(inputs[0], operator.window, operator.every or operator.window, silent_until)
    members = F.collect_list(F.struct(TS, *(F.col(c.name) for c in columns), HI, LO))
    ts, *window = bounds(operator.window)
    collected = (
        rows.groupBy(EVENT, *groups)
        .agg(F.sort_array(members).alias(MEMBERS))
        .select(
            ts,
            *window_ids(operator.name, end(), groups),
            *window,
            *groups,
            # canonical order is that of the columns before the ids; behind it, the ids come first
            F.transform(
                MEMBERS, lambda m: F.struct(m[TS], m[HI], m[LO], *(m[c.name] for c in columns))
            ).alias(MEMBERS),
        )
    )
    function = partial(
        fold_windows,
        operator=operator,
        columns=columns,
        silent_until=silent_until,
        reports=context.reports,
    )
    fixed = [f"{TS} timestamp, {HI} bigint, {LO} bigint, window_start timestamp, window_end timestamp"]
    made = [f"`{column.name}` {column.type}" for column in (*by, *operator.columns)]
    return collected.mapInArrow(function, ", ".join(fixed + made))
