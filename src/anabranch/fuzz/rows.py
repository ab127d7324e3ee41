"""Rows of an output as plain tuples, equal if and only if they are the same tuple to the bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

IDS = ("_hi", "_lo")


class Double(str):
    """A double as hexadecimal text, which tells 0.0 from -0.0 and makes NaN equal to NaN."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(float.fromhex(self))


class Row(NamedTuple):
    """One tuple: its lineage id, its timestamp and its columns."""

    id: tuple[int, int]
    ts: int
    values: tuple[Any, ...]

    @property
    def content(self) -> tuple[int, tuple[Any, ...]]:
        return self.ts, self.values


POSITIVE, NEGATIVE = Double("0x0.0p+0"), Double("-0x0.0p+0")


def rows(table: pa.Table, columns: Sequence[str]) -> list[Row]:
    values = [_plain(table[name]) for name in columns]
    ids = zip(*(table[name].to_pylist() for name in IDS), strict=True)
    return [Row(id, ts, tuple(row)) for id, ts, *row in zip(ids, _plain(table["ts"]), *values, strict=True)]


def times(table: pa.Table, column: str) -> list[int]:
    return list(table[column].cast(pa.int64()).to_pylist())


def without_sign_of_zero(row: Row) -> tuple[int, tuple[Any, ...]]:
    """The content as the canonical order sees it, to which 0.0 and -0.0 are one."""
    return row.ts, tuple(POSITIVE if value == NEGATIVE else value for value in row.values)


def _plain(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        return list(column.cast(pa.int64()).to_pylist())
    if pa.types.is_floating(column.type):
        return [value if value is None else Double(float(value).hex()) for value in column.to_pylist()]
    return list(column.to_pylist())
