"""Typed expressions, and the conversions that Spark inserts by itself (``spark.sql.ansi.enabled=false``).

Two types exist only while an expression is read: ``void``, the type of a bare NULL, and ``decimal``, the type
of a literal such as 0.5. Either takes the type of what it meets; a decimal that meets no float or double is
refused, for in Spark it would make the result a decimal.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from math import ceil, floor, inf, nan
from typing import Any

import msgspec

from anabranch.types import FRACTIONAL, INTEGRAL, NUMERIC


class Expr(msgspec.Struct, frozen=True):
    """An expression whose every conversion is explicit.

    ``op`` names the operation, ``type`` is the Spark type of its result. ``value`` is what the operation
    needs besides its arguments: a literal's value, a column's position (-1: the tuple's timestamp), a LIKE
    pattern as a regular expression, the digits of ROUND, the name of an aggregate.
    """

    op: str
    type: str
    args: tuple[Expr, ...] = ()
    value: Any = None


NULL = Expr("literal", "void")


def common_type(exprs: Sequence[Expr]) -> str | None:
    """The type that all of ``exprs`` take where one is needed; None if Spark has none here, or a decimal."""
    types = [expr.type for expr in exprs if expr.type != "void"]
    if not types:
        return "void"
    if "decimal" in types:
        numeric = all(name in NUMERIC or name == "decimal" for name in types)
        return "double" if numeric and any(name in FRACTIONAL for name in types) else None
    if all(name == types[0] for name in types):
        return types[0]
    if all(name in NUMERIC for name in types):
        return max(types, key=NUMERIC.index)
    if all(name in ("date", "timestamp") for name in types):
        return "timestamp"
    return None


def convert(expr: Expr, type_name: str) -> Expr:
    """``expr`` as ``type_name``."""
    if expr.type == type_name:
        return expr
    if expr.op == "literal" and expr.value is None:
        return Expr("literal", type_name)
    if expr.op == "literal" and expr.type in (*INTEGRAL, "decimal") and type_name in NUMERIC:
        return literal_number(expr.value, type_name)
    return Expr("cast", type_name, (expr,))


def literal_number(value: int | Decimal, type_name: str) -> Expr:
    """A number that fits ``type_name`` as its literal; for a float the text, to be rounded once."""
    if type_name in INTEGRAL:
        return Expr("literal", type_name, value=int(value))
    return Expr("literal", type_name, value=float(value) if type_name == "double" else str(value))


_CASTS: dict[str, tuple[str, ...]] = {
    "boolean": (*NUMERIC, "string"),
    **dict.fromkeys(INTEGRAL, (*NUMERIC, "boolean", "string", "timestamp")),
    **dict.fromkeys(FRACTIONAL, (*NUMERIC, "boolean")),
    "string": (*NUMERIC, "boolean", "binary"),
    "date": ("timestamp",),
    "timestamp": ("bigint", "double", "date"),
}


def castable(source: str, target: str) -> bool:
    """Whether CAST between these types means what it means in Spark, on every JVM and in every time zone."""
    return source in (target, "void") or target in _CASTS.get(source, ())


_SWAPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>", "<=>": "<=>"}


def compare(op: str, left: Expr, right: Expr) -> Expr | None:
    """The comparison, or None if Spark has none here between these types."""
    if left.type == "decimal" and right.type in INTEGRAL:
        return compare(_SWAPPED[op], right, left)
    if left.type in INTEGRAL and right.type == "decimal":
        return _compare_integral(op, left, right.value)
    shared = common_type((left, right))
    if shared is None:
        return None
    if shared == "void":
        shared = "boolean"
    return Expr(op, "boolean", (convert(left, shared), convert(right, shared)))


def _compare_integral(op: str, left: Expr, bound: Decimal) -> Expr:
    """An integer against a decimal literal: the literal moves to the integer that splits the line alike."""
    limit = ceil(bound) if op in ("<", ">=") else floor(bound)
    if (limit == bound or op not in ("=", "<>", "<=>")) and -(2**63) <= limit < 2**63:
        return Expr(op, "boolean", (convert(left, "bigint"), Expr("literal", "bigint", value=limit)))
    beyond = nan if op in ("=", "<>", "<=>") else inf if bound > 0 else -inf
    return Expr(op, "boolean", (convert(left, "double"), Expr("literal", "double", value=beyond)))
