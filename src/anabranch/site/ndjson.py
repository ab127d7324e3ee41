"""Tuples as JSON, one object each, of the form in which :mod:`anabranch.inputs` reads them."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

from anabranch.streams.batch import TS, Batch


def rows(batch: Batch) -> Iterator[dict[str, Any]]:
    """``ts`` and the columns of each tuple; its id is left out.

    >>> import pyarrow as pa
    >>> from anabranch.streams.batch import TIMESTAMP
    >>> ts = pa.array([1_500_000], pa.int64()).cast(TIMESTAMP)
    >>> one = pa.RecordBatch.from_arrays([ts, pa.array([7]), pa.array([math.nan])], ["_ts", "_hi", "x"])
    >>> list(rows(one))
    [{'ts': '1970-01-01T00:00:01.500000Z', 'x': 'NaN'}]
    """
    names = [name for name in batch.schema.names if name not in ("_hi", "_lo")]
    columns = [[value(each) for each in batch.column(name).to_pylist()] for name in names]
    called = ["ts" if name == TS else name for name in names]
    for values in zip(*columns, strict=True):
        yield dict(zip(called, values, strict=True))


def value(of: Any) -> Any:
    """As JSON has it, or as text where it has no such thing."""
    if isinstance(of, float) and not math.isfinite(of):
        return "NaN" if math.isnan(of) else "Infinity" if of > 0 else "-Infinity"
    if isinstance(of, datetime):
        return of.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(of, date):
        return of.isoformat()
    if isinstance(of, bytes):
        return base64.b64encode(of).decode()
    return of
