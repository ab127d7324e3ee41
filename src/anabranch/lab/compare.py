"""What was received against what should have been, tuple by tuple, when nothing but the values is known."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

Row = tuple[Any, ...]
NEAR = 1e-9
"""Relative: sums of floats come out differently in another order."""


def compare(expected: pa.Table, received: pa.Table) -> tuple[list[Row], list[Row]]:
    """The rows of ``expected`` that are missing in ``received``, and those that are there and should not be,
    or not as often. Both have the same columns; ids are not looked at.

    >>> wanted = pa.table({"x": [1, 2, 2], "y": [0.1, 0.5, 0.5]})
    >>> compare(wanted, pa.table({"x": [1, 2], "y": [0.1 + 1e-12, 0.5]}))
    ([(2, 0.5)], [])
    """
    names = [name for name in expected.column_names if name not in ("_hi", "_lo")]
    wanted, got = (Counter(_rows(table.select(names))) for table in (expected, received))
    missing, extra = list((wanted - got).elements()), list((got - wanted).elements())
    return _but_for_rounding(missing, extra)


def _but_for_rounding(missing: list[Row], extra: list[Row]) -> tuple[list[Row], list[Row]]:
    """Those left when rows that differ only in the last digits of floats have been paired."""
    candidates: dict[Row, list[Row]] = defaultdict(list)
    for row in extra:
        candidates[_without_floats(row)].append(row)
    left = []
    for row in missing:
        alike = candidates[_without_floats(row)]
        found = next((other for other in alike if _near(row, other)), None)
        if found is None:
            left.append(row)
        else:
            alike.remove(found)
    return left, [row for rows in candidates.values() for row in rows]


def _without_floats(row: Row) -> Row:
    return tuple("float" if isinstance(value, float) and math.isfinite(value) else value for value in row)


def _near(a: Row, b: Row) -> bool:
    pairs = zip(a, b, strict=True)
    return all(x == y or (isinstance(x, float) and math.isclose(x, y, rel_tol=NEAR)) for x, y in pairs)


def _rows(table: pa.Table) -> Iterator[Row]:
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.columns
    ]
    return zip(*(map(_plain, column.to_pylist()) for column in columns), strict=True)


def _plain(value: Any) -> Any:
    """NaN equals itself here, and minus zero is zero."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value
