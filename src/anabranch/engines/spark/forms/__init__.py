"""The Spark form of every operator: from DataFrames to a DataFrame, in native expressions, streaming or not.

A stream is a DataFrame with the columns ``_ts``, ``_hi``, ``_lo`` and the user's. The forms stand here and
not beside the Arrow kernels in ``operators``: those are imported by every process that has no Spark, and what
belongs to a form (event time, watermarks, the shape of a query) is Spark's business alone. What both share is
the meaning, and the conformance suite holds them to it.

Streaming and batch differ in one thing only: what is metadata of event time to a streaming query means
nothing to a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anabranch.engines.spark.forms.aggregate import aggregate
from anabranch.engines.spark.forms.context import Context
from anabranch.engines.spark.forms.count_aggregate import count_aggregate
from anabranch.engines.spark.forms.custom import custom
from anabranch.engines.spark.forms.custom_window import custom_window
from anabranch.engines.spark.forms.join import join
from anabranch.engines.spark.forms.stateless import filter_, map_, union
from anabranch.engines.spark.forms.top_k import top_k
from anabranch.nodes import Aggregate, CountAggregate, Custom, Filter, Join, Map, TopK, Union

__all__ = ["FORMS", "Context"]


def _custom(operator: Custom, inputs: Sequence[Any], context: Context) -> Any:
    return (custom if operator.window is None else custom_window)(operator, inputs, context)


Form = Callable[[Any, Sequence[Any], Context], Any]

FORMS: dict[type, Form] = {
    Filter: filter_,
    Map: map_,
    Union: union,
    Join: join,
    Aggregate: aggregate,
    CountAggregate: count_aggregate,
    TopK: top_k,
    Custom: _custom,
}
