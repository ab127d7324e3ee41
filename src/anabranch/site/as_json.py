"""Tuples as JSON: what JSON cannot write becomes text as sources read it."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa

from anabranch.streams.batch import Batch, ids, timestamps

_encoder = msgspec.json.Encoder()


def objects(batch: Batch) -> list[bytes]:
    """One JSON object a tuple: ``ts``, ``_id`` (its lineage id), and the columns of the user.

    >>> import numpy as np
    >>> from anabranch.streams.batch import ID_FIELDS, assemble
    >>> schema = pa.schema([*ID_FIELDS, ("v", pa.float64())])
    >>> one = np.array([1_000_000])
    >>> objects(assemble(one, one, one, [pa.array([math.inf])], schema))[0].decode()
    '{"ts":"1970-01-01T00:00:01.000000Z","_id":"00000000000f424000000000000f4240","v":"Infinity"}'
    """
    high, low = ids(batch)
    mask = (1 << 64) - 1
    columns: dict[str, list[Any]] = {
        "ts": [instant(ts) for ts in timestamps(batch).tolist()],
        "_id": [
            f"{hi & mask:016x}{lo & mask:016x}" for hi, lo in zip(high.tolist(), low.tolist(), strict=True)
        ],
    }
    for field, column in zip(list(batch.schema)[3:], batch.columns[3:], strict=True):
        columns[field.name] = _values(column)
    return [
        _encoder.encode(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)
    ]


def instant(microseconds: int) -> str:
    """A timestamp as ISO 8601 in UTC."""
    scalar = pa.scalar(microseconds, pa.int64()).cast(pa.timestamp("us")).cast(pa.string())
    return str(scalar.as_py()).replace(" ", "T") + "Z"


def _values(column: pa.Array) -> list[Any]:
    t, kind = pa.types, column.type
    if t.is_timestamp(kind):
        return _each(column.cast(pa.int64()).to_pylist(), instant)
    if t.is_date(kind):
        return _each(column.to_pylist(), str)
    if t.is_binary(kind):
        return _each(column.to_pylist(), lambda value: base64.b64encode(value).decode())
    if t.is_floating(kind):
        return _each(column.to_pylist(), _number)
    return list(column.to_pylist())


def _each(values: list[Any], how: Callable[[Any], Any]) -> list[Any]:
    return [None if value is None else how(value) for value in values]


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
