"""User code for the Custom operators that the drawing puts into queries. It fits any schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa


def _times(batch: pa.RecordBatch) -> Any:
    return batch.column(batch.schema.get_field_index("ts")).cast(pa.int64()).to_numpy()


def measure(batch: pa.RecordBatch) -> pa.RecordBatch:
    """One row a row: the millisecond of its timestamp and how many of its columns are null."""
    nulls = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        nulls += column.is_null().to_numpy(zero_copy_only=False)
    return pa.RecordBatch.from_pydict(
        {"millisecond": pa.array(_times(batch) // 1000), "nulls": pa.array(nulls)}
    )


def echo(batch: pa.RecordBatch) -> pa.RecordBatch:
    """No, one or two rows a row, by its timestamp."""
    times = _times(batch)
    copies = (times // 1000) % 3
    rows = np.repeat(np.arange(batch.num_rows), copies)
    return pa.RecordBatch.from_pydict(
        {"_row": pa.array(rows, pa.int64()), "half": pa.array(times[rows] % 1_000_000 * 0.5, pa.float64())}
    )


def fussy(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Raises on about every sixth row."""
    seconds, part = np.divmod(_times(batch) // 1000, 1000)
    if (part % 6 == 5).any():
        raise ValueError("a timestamp that fussy does not like")
    return pa.RecordBatch.from_pydict({"part": pa.array(part, pa.int64()), "odd": pa.array(seconds % 2 == 1)})


class Census:
    """Rows and filled columns of a window."""

    def lift(self, row: Mapping[str, Any]) -> tuple[int, int]:
        return 1, sum(value is not None for value in row.values())

    def merge(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        return a[0] + b[0], a[1] + b[1]

    def final(self, state: tuple[int, int]) -> dict[str, Any]:
        return {"population": state[0], "filled": state[1]}


class Balance(Census):
    """The same with ``remove``: an engine may slide the window instead of folding it anew."""

    def remove(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        return a[0] - b[0], a[1] - b[1]
