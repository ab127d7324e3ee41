"""Columns of fixed width as numpy arrays with validity, and the arithmetic and logic of Spark over them.

A vector is ``(values, valid)``; ``valid`` is None where nothing is null. Constants are vectors of one row,
which numpy broadcasts. What stands in ``values`` under a null means nothing until ``to_arrow`` makes it zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.types import ARROW

Valid = npt.NDArray[np.bool_] | None
Vector = tuple[npt.NDArray[Any], Valid]
Unary = Callable[[Vector], Vector]
Binary = Callable[[Vector, Vector], Vector]

DTYPE: dict[str, np.dtype[Any]] = {
    "boolean": np.dtype(np.bool_),
    "tinyint": np.dtype(np.int8),
    "smallint": np.dtype(np.int16),
    "int": np.dtype(np.int32),
    "bigint": np.dtype(np.int64),
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    "date": np.dtype(np.int32),
    "timestamp": np.dtype(np.int64),
}
"""The types that are vectors; string and binary stay Arrow arrays."""


def bits(buffer: pa.Buffer, offset: int, rows: int) -> npt.NDArray[np.bool_]:
    """``rows`` bits of an Arrow bitmap from bit ``offset`` on."""
    first, skip = offset >> 3, offset & 7
    octets = np.frombuffer(buffer, np.uint8, ((offset + rows + 7) >> 3) - first, first)
    return np.unpackbits(octets, count=skip + rows, bitorder="little")[skip:].view(np.bool_)


def from_arrow(column: pa.Array, dtype: np.dtype[Any]) -> Vector:
    """The values are not copied, but for booleans."""
    rows = len(column)
    if rows == 0:
        return np.empty(0, dtype), None
    validity, data = column.buffers()
    if dtype is DTYPE["boolean"]:
        values: npt.NDArray[Any] = bits(data, column.offset, rows)
    else:
        values = np.frombuffer(data, dtype, rows, column.offset * dtype.itemsize)
    return values, bits(validity, column.offset, rows) if column.null_count else None


def to_arrow(vector: Vector, rows: int, type_name: str) -> pa.Array:
    """An Arrow array of ``rows`` rows; equal vectors give equal bytes."""
    values, valid = vector
    if len(values) != rows:
        values = np.repeat(values, rows)
    nulls, validity = 0, None
    if valid is not None and not valid.all():
        valid = valid if len(valid) == rows else np.repeat(valid, rows)
        values = np.where(valid, values, values.dtype.type(0))
        validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
        nulls = rows - int(np.count_nonzero(valid))
    if type_name == "boolean":
        values = np.packbits(values, bitorder="little")
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(ARROW[type_name], rows, [validity, data], nulls)


def constant(value: Any, type_name: str) -> Vector:
    dtype = DTYPE[type_name]
    if value is None:
        return np.zeros(1, dtype), np.zeros(1, np.bool_)
    return np.array([value], dtype), None


def both(left: Valid, right: Valid) -> Valid:
    if left is None:
        return right
    return left if right is None else left & right


def known(vector: Vector) -> npt.NDArray[np.bool_]:
    """A condition's rows that are true, neither false nor null."""
    values, valid = vector
    return values if valid is None else values & valid


def strict(function: Callable[[Any, Any], Any]) -> Binary:
    """Null where either side is."""

    def apply(left: Vector, right: Vector) -> Vector:
        return function(left[0], right[0]), both(left[1], right[1])

    return apply


def elementwise(function: Callable[[Any], Any]) -> Unary:
    return lambda vector: (function(vector[0]), vector[1])


def divide(function: Callable[[Any, Any], Any]) -> Binary:
    """As ``strict``, and null where the divisor is zero."""

    def apply(left: Vector, right: Vector) -> Vector:
        return function(left[0], right[0]), both(both(left[1], right[1]), right[0] != 0)

    return apply


def conjunction(left: Vector, right: Vector) -> Vector:
    (a, va), (b, vb) = left, right
    if va is None and vb is None:
        return a & b, None
    va = np.True_ if va is None else va  # type: ignore[assignment]
    vb = np.True_ if vb is None else vb  # type: ignore[assignment]
    return a & b, (va & vb) | (va & ~a) | (vb & ~b)  # type: ignore[operator]


def disjunction(left: Vector, right: Vector) -> Vector:
    return negation(conjunction(negation(left), negation(right)))


def negation(vector: Vector) -> Vector:
    return ~vector[0], vector[1]


def is_null(vector: Vector) -> Vector:
    values, valid = vector
    return (np.zeros(len(values), np.bool_) if valid is None else ~valid), None


# Spark's order of floats: NaN equals NaN and exceeds all else, -0.0 equals 0.0.
_FLOAT: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda a, b: (a == b) | (np.isnan(a) & np.isnan(b)),
    "<>": lambda a, b: (a != b) & ~(np.isnan(a) & np.isnan(b)),
    "<": lambda a, b: ~((b <= a) | np.isnan(a)),
    "<=": lambda a, b: (a <= b) | np.isnan(b),
    ">": lambda a, b: ~((a <= b) | np.isnan(b)),
    ">=": lambda a, b: (b <= a) | np.isnan(a),
}
# The same where the right side is a constant other than NaN.
_FLOAT_AND_CONSTANT: dict[str, Callable[[Any, Any], Any]] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": lambda a, b: ~(a <= b),
    ">=": lambda a, b: ~(a < b),
}
_EXACT: dict[str, Callable[[Any, Any], Any]] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def comparison(op: str, type_name: str, *, plain: bool = False) -> Binary:
    """``plain``: the right side is never NaN."""
    if op == "<=>":
        return null_safe(comparison("=", type_name, plain=plain))
    if type_name not in ("float", "double"):
        return strict(_EXACT[op])
    return strict((_FLOAT_AND_CONSTANT if plain else _FLOAT)[op])


def null_safe(equal: Binary) -> Binary:
    """``<=>``: null equals null and nothing else."""

    def apply(left: Any, right: Any) -> Vector:
        same = known(equal(left, right))
        return same | (absent(left) & absent(right)), None

    return apply


def absent(value: Any) -> Any:
    """Where a vector or an Arrow array or scalar is null."""
    if isinstance(value, pa.Array):
        return ~bits(value.buffers()[0], value.offset, len(value)) if value.null_count else np.False_
    if isinstance(value, pa.Scalar):
        return np.bool_(not value.is_valid)
    return np.False_ if value[1] is None else ~value[1]


def membership(equal: Binary, value: Any, *options: Any) -> Vector:
    """``value IN (options)``, three-valued."""
    result = equal(value, options[0])
    for option in options[1:]:
        result = disjunction(result, equal(value, option))
    return result


def choose(*args: Vector) -> Vector:
    """CASE: condition, result, condition, result, ..., else."""
    values, valid = args[-1]
    for i in range(len(args) - 3, -1, -2):
        taken = known(args[i])
        then, then_valid = args[i + 1]
        if valid is not None or then_valid is not None:
            valid = np.where(
                taken, True if then_valid is None else then_valid, True if valid is None else valid
            )
        values = np.where(taken, then, values)
    return values, valid


def coalesce(*args: Vector) -> Vector:
    values, valid = args[-1]
    for other, other_valid in reversed(args[:-1]):
        if other_valid is None:
            values, valid = other, None
        else:
            values = np.where(other_valid, other, values)
            valid = None if valid is None else valid | other_valid
    return values, valid


def extreme(better: Binary) -> Callable[..., Vector]:
    """GREATEST and LEAST: nulls are skipped, the first of equals stays."""

    def apply(first: Vector, *others: Vector) -> Vector:
        values, valid = first
        for other, other_valid in others:
            wins = better((other, None), (values, None))[0]
            if valid is not None:
                wins = wins | ~valid
            if other_valid is not None:
                wins = wins & other_valid
            values = np.where(wins, other, values)
            valid = None if valid is None or other_valid is None else valid | other_valid
        return values, valid

    return apply
