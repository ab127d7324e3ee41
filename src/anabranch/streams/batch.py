"""Tuples in motion: Arrow record batches whose first three columns are timestamp and lineage id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

TS, HI, LO = "_ts", "_hi", "_lo"
TIMESTAMP = pa.timestamp("us", "UTC")
ID_FIELDS = (pa.field(TS, TIMESTAMP), pa.field(HI, pa.int64()), pa.field(LO, pa.int64()))

Batch: TypeAlias = pa.RecordBatch
Ints = npt.NDArray[np.int64]


def with_ids(schema: pa.Schema) -> pa.Schema:
    """The schema of a stream whose user columns are ``schema``."""
    return pa.schema([*ID_FIELDS, *schema])


def ints(column: pa.Array) -> Ints:
    """The int64 values of an int64 or timestamp column without nulls, not copied."""
    return np.frombuffer(column.buffers()[1], np.int64, len(column), column.offset * 8)


def timestamps(batch: Batch) -> Ints:
    return ints(batch.column(0))


def ids(batch: Batch) -> tuple[Ints, Ints]:
    return ints(batch.column(1)), ints(batch.column(2))


def assemble(ts: Ints, hi: Ints, lo: Ints, columns: Sequence[pa.Array], schema: pa.Schema) -> Batch:
    """A batch of ``schema`` (ids included) from numpy timestamps and ids and Arrow user columns."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array(ts, pa.int64()).view(TIMESTAMP),
            pa.array(hi, pa.int64()),
            pa.array(lo, pa.int64()),
            *columns,
        ],
        schema=schema,
    )


def cut(batch: Batch, limit: int) -> list[Batch]:
    """The same rows in batches of ``limit`` bytes at most, as far as single rows are smaller than that.

    >>> rows = pa.record_batch({"v": pa.array(range(100), pa.int64())})
    >>> [piece.num_rows for piece in cut(rows, 300)]
    [34, 34, 32]
    """
    if batch.nbytes <= limit or batch.num_rows == 1:
        return [batch]
    pieces = min(batch.num_rows, -(-int(batch.nbytes) // limit))
    step = -(-batch.num_rows // pieces)
    parts = [batch.slice(first, step) for first in range(0, batch.num_rows, step)]
    return [piece for part in parts for piece in cut(part, limit)]


def concat(batches: Sequence[Batch]) -> Batch:
    """One batch of all rows; at least one batch."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
