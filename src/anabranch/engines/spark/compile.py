"""From operators and the DataFrames of their inputs to the DataFrames of all they yield."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.engines.spark.forms import FORMS, Context


def compile_operators(
    operators: Sequence[str], inputs: Mapping[str, Any], context: Context
) -> dict[str, Any]:
    """The DataFrame of every operator in ``operators``; ``inputs`` has those of the streams from outside."""
    frames = dict(inputs)
    made = {}
    for operator in context.graph.operators:
        if operator.name in operators:
            form = FORMS[type(operator)]
            frames[operator.name] = made[operator.name] = form(
                operator, [frames[name] for name in operator.inputs], context
            )
    return made
