"""How old tuples are where they pass: the time since their timestamps, added up for each stage, never for
each tuple. Over the number of tuples it is their mean age there, and from one stage to the next the time that
was spent between."""

from __future__ import annotations

import numpy as np

from anabranch.streams.batch import Batch, timestamps


def age(rows: Batch, now: int) -> int:
    """Microseconds, of all of them together.

    >>> import pyarrow as pa
    >>> age(pa.record_batch({"_ts": pa.array([1_000, 3_000], pa.int64())}), 4_000)
    4000
    """
    # As floats: whole numbers would overflow with a few thousand timestamps.
    mean = float(np.mean(timestamps(rows), dtype=np.float64))
    return round(int(rows.num_rows) * (now - mean))
