"""Aggregate: a windowed aggregation of Spark's, emitted when the watermark has passed the window's end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlglot
from pyspark.sql import functions as F
from sqlglot import exp

from anabranch.engines.spark.forms.context import Context
from anabranch.engines.spark.forms.event_time import EVENT
from anabranch.engines.spark.forms.ids import window_ids
from anabranch.engines.spark.forms.stateless import with_ts
from anabranch.engines.spark.forms.windows import bounds, end, in_windows
from anabranch.nodes import Aggregate
from anabranch.schemas import find

_GREATEST = "max_by({0}, CASE WHEN {1} IS NOT NULL THEN struct({1} AS a, ~unix_micros(_ts), ~_hi, ~_lo) END)"
_LEAST = "min_by({0}, CASE WHEN {1} IS NOT NULL THEN struct({1} AS a, unix_micros(_ts), _hi, _lo) END)"


def aggregate(operator: Aggregate, inputs: Sequence[Any], context: Context) -> Any:
    graph = context.graph
    by = [find(name, graph.schema(operator.input), operator.name).name for name in operator.by]
    rows = in_windows(inputs[0], operator.window, operator.every, context.silent_until(operator.name))
    columns = graph.schema(operator.name)[2 + len(by) :]
    folded = [
        F.expr(exact(expression)).cast(column.type).alias(column.name)
        for (_, expression), column in zip(operator.aggregates, columns, strict=True)
    ]
    ts, *window = bounds(operator.window)
    return (
        with_ts(rows)
        .groupBy(EVENT, *by)
        .agg(*folded)
        .select(ts, *window_ids(operator.name, end(), by), *window, *by, *(column.name for column in columns))
    )


def exact(expression: str) -> str:
    """``expression`` with MAX_BY and MIN_BY such that of equal candidates the first, by (timestamp, id),
    wins; Spark takes any.

    >>> exact("max_by(k, x)").startswith("MAX_BY((k), CASE WHEN")
    True
    >>> exact("sum(x) / 2")
    'sum(x) / 2'
    """
    if "_by" not in expression.lower():
        return expression
    tree = sqlglot.parse_one(expression, dialect="spark")
    return str(tree.transform(_settled).sql(dialect="spark"))


def _settled(node: Any) -> Any:
    if not isinstance(node, exp.ArgMax | exp.ArgMin):
        return node
    form = _GREATEST if isinstance(node, exp.ArgMax) else _LEAST
    value, order = node.this.sql(dialect="spark"), node.expression.sql(dialect="spark")
    return sqlglot.parse_one(form.format(f"({value})", f"({order})"), dialect="spark")
