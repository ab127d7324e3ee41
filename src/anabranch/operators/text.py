"""Strings and binaries, as Arrow arrays or, where constant, scalars; Spark's functions and casts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.operators.vectors import DTYPE, Vector, from_arrow, known, to_arrow
from anabranch.types import ARROW

Text = Any
"""An Arrow array, or, where it is constant, an Arrow scalar, of strings or binaries."""

_COMPARE = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
# What Spark trims off a text before it reads a number: white space and control characters of ASCII.
_BLANK = "".join(map(chr, [*range(33), 127]))
_WHOLE = re.compile(r"([+-]?)([0-9]*)(?:\.[0-9]*)?")
_FLOAT = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_NAMED = {
    "inf": "inf",
    "+inf": "inf",
    "infinity": "inf",
    "+infinity": "inf",
    "-inf": "-inf",
    "-infinity": "-inf",
    "nan": "nan",
}
_TRUE = ("t", "true", "y", "yes", "1")
_FALSE = ("f", "false", "n", "no", "0")


def scalar(value: Any, type_name: str) -> pa.Scalar:
    return pa.scalar(value, ARROW[type_name])


def spread(text: Text, rows: int) -> pa.Array:
    """A constant as ``rows`` rows; an array as it is."""
    return pa.repeat(text, rows) if isinstance(text, pa.Scalar) else text


def _vector(result: Any, type_name: str) -> Vector:
    dtype = DTYPE[type_name]
    if isinstance(result, pa.Scalar):
        valid = None if result.is_valid else np.zeros(1, np.bool_)
        return np.array([result.as_py() or 0], dtype), valid
    return from_arrow(result, dtype)


def _items(text: Text) -> list[Any]:
    items: list[Any] = [text.as_py()] if isinstance(text, pa.Scalar) else text.to_pylist()
    return items


def _from_items(items: list[Any], type_name: str) -> Vector:
    valid = np.array([item is not None for item in items], np.bool_)
    values = np.array([0 if item is None else item for item in items], DTYPE[type_name])
    return values, None if valid.all() else valid


def comparison(op: str) -> Callable[[Text, Text], Vector]:
    function = _COMPARE[op]
    return lambda left, right: _vector(function(left, right), "boolean")


def is_null(text: Text) -> Vector:
    return _vector(pc.is_null(text), "boolean")


def like(pattern: str) -> Callable[[Text], Vector]:
    matches = re.compile(pattern, re.DOTALL).fullmatch

    def apply(text: Text) -> Vector:
        return _from_items(
            [None if item is None else bool(matches(item)) for item in _items(text)], "boolean"
        )

    return apply


def length(text: Text) -> Vector:
    kind = text.type
    return _vector(pc.utf8_length(text) if kind == pa.string() else pc.binary_length(text), "int")


def mapped(function: Callable[[str], str]) -> Callable[[Text], Text]:
    """LOWER and UPPER: Python's mappings are Unicode's full ones, as Spark's are; Arrow's are not."""
    return lambda text: _like(text, [None if item is None else function(item) for item in _items(text)])


def _text(column: pa.Array) -> Text:
    """One row may stand for all, so it becomes a scalar."""
    return column[0] if len(column) == 1 else column


def _like(text: Text, items: list[Any]) -> Text:
    return scalar(items[0], "string") if isinstance(text, pa.Scalar) else pa.array(items, pa.string())


def substring(text: Text, start: Vector, count: Vector | None = None) -> Text:
    starts = to_python(start, "int")
    counts = [2**31 - 1] if count is None else to_python(count, "int")
    items = _items(text)
    rows = max(len(items), len(starts), len(counts)) if items and starts and counts else 0
    cut = [_cut(items[i % len(items)], starts[i % len(starts)], counts[i % len(counts)]) for i in range(rows)]
    return _text(pa.array(cut, pa.string()))


def to_python(vector: Vector, type_name: str) -> list[Any]:
    items: list[Any] = to_arrow(vector, len(vector[0]), type_name).to_pylist()
    return items


def _cut(text: str | None, start: int | None, count: int | None) -> str | None:
    """``start`` counts from 1 (0 too), negative from the end; what lies before the text uses up count."""
    if text is None or start is None or count is None:
        return None
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    end = begin + count
    return text[max(begin, 0) : max(end, 0)] if end > begin else ""


def concat(*parts: Text) -> Text:
    return pc.binary_join_element_wise(*parts, "", null_handling="emit_null")


def choose(*args: Any) -> Text:
    """CASE: condition, result, condition, result, ..., else; conditions are vectors."""
    result = args[-1]
    for i in range(len(args) - 3, -1, -2):
        taken = known(args[i])
        condition = pa.scalar(bool(taken[0])) if len(taken) == 1 else pa.array(taken)
        result = pc.if_else(condition, args[i + 1], result)
    return result


def from_vector(vector: Vector, type_name: str) -> Text:
    """CAST of a whole number or a boolean to string."""
    return _text(pc.cast(to_arrow(vector, len(vector[0]), type_name), pa.string()))


def to_binary(text: Text) -> Text:
    return pc.cast(text, pa.binary())


def to_vector(type_name: str) -> Callable[[Text], Vector]:
    """CAST of string to a number or a boolean; null where the text is none."""
    parse = {"boolean": _boolean, "double": _double, "float": _float}.get(type_name) or _whole(type_name)
    return lambda text: _from_items(
        [None if item is None else parse(item) for item in _items(text)], type_name
    )


def _boolean(text: str) -> bool | None:
    word = text.strip(_BLANK).lower()
    return True if word in _TRUE else False if word in _FALSE else None


def _whole(type_name: str) -> Callable[[str], int | None]:
    limits = np.iinfo(DTYPE[type_name])
    low, high = int(limits.min), int(limits.max)

    def parse(text: str) -> int | None:
        stripped = text.strip(_BLANK)
        match = _WHOLE.fullmatch(stripped)
        if match is None or stripped in ("", "+", "-") or len(match[2].lstrip("0")) > 20:
            return None
        value = int(match[2] or "0") * (-1 if match[1] == "-" else 1)
        return value if low <= value <= high else None

    return parse


def _number_text(text: str) -> str | None:
    """What Java's parseDouble would read, in a form that Python and Arrow read alike."""
    stripped = text.strip("".join(map(chr, range(33))))
    match = _FLOAT.fullmatch(stripped)
    if match is None:
        if stripped in ("+NaN", "-NaN"):
            return "nan"
        return _NAMED.get(stripped.lower())
    return match[1] or repr(float.fromhex(match[2]))


def _double(text: str) -> float | None:
    number = _number_text(text)
    return None if number is None else float(number)


def _float(text: str) -> float | None:
    number = _number_text(text)
    return None if number is None else narrow(number)


def narrow(text: str) -> float:
    """The float nearest to a decimal text, rounded once: not by way of the nearest double."""
    value = pa.scalar(text.removeprefix("+")).cast(pa.float32()).as_py()
    return float(value)
