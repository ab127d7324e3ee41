"""How old tuples are where they pass: the time since their timestamps, added up for each stage, never for
each tuple. Over the number of tuples it is their mean age there, and from one stage to the next the time that
was spent between."""

from __future__ import annotations

from anabranch.streams.batch import Batch, timestamps

_HALF = 1 << 63


def age(rows: Batch, now: int) -> int:
    """Microseconds, of all of them together.

    >>> import pyarrow as pa
    >>> age(pa.record_batch({"_ts": pa.array([1_000, 3_000], pa.int64())}), 4_000)
    4000
    """
    # The sum may overflow, but what is left of it when the other is taken away does not: modulo 2**64.
    total = int(rows.num_rows) * now - int(timestamps(rows).sum())
    return (total + _HALF) % (2 * _HALF) - _HALF
