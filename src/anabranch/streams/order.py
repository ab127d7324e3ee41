"""Canonical order, and sorting behind punctuation.

By timestamp, then by column values in schema order: nulls first, NaN greatest, -0.0 = 0.0, strings by their
bytes. Ids take no part, so the order is one of content: whatever arrived first, however it was computed,
equal streams sort equally.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.streams.batch import ID_FIELDS, Batch, Ints, concat, timestamps

Key = npt.NDArray[np.generic]

_WIDTHS: dict[int, type[np.generic]] = {
    pa.lib.Type_INT8: np.int8,
    pa.lib.Type_INT16: np.int16,
    pa.lib.Type_INT32: np.int32,
    pa.lib.Type_DATE32: np.int32,
    pa.lib.Type_INT64: np.int64,
    pa.lib.Type_TIMESTAMP: np.int64,
    pa.lib.Type_FLOAT: np.float32,
    pa.lib.Type_DOUBLE: np.float64,
}


def canonical_order(batch: Batch) -> Ints:
    """The rows' indices in canonical order; equal rows stay as they came."""
    ts = timestamps(batch)
    if len(ts) < 2 or (ts[1:] > ts[:-1]).all():
        return np.arange(len(ts))
    order = np.argsort(ts, kind="stable")
    ties = _ties(ts[order])
    if ties is not None:
        tied = order[ties]
        rows = batch.take(pa.array(tied))
        keys = [key for column in rows.columns[len(ID_FIELDS) :] for key in _keys(column)]
        order[ties] = tied[np.lexsort([*reversed(keys), ts[tied]])]
    return order


def sort(batch: Batch) -> Batch:
    """The rows in canonical order: the very same batch if they are already."""
    order = canonical_order(batch)
    if (order[1:] > order[:-1]).all():
        return batch
    return batch.take(pa.array(order))


class Sorter:
    """Sorts a stream behind its punctuation (Algorithm 4, lines 1 to 6).

    >>> from anabranch.streams.batch import assemble
    >>> ids, schema = np.zeros(3, np.int64), pa.schema([*ID_FIELDS, ("v", pa.string())])
    >>> rows = assemble(np.array([7, 3, 3]), ids, ids, [pa.array(["c", "b", "a"])], schema)
    >>> sorter = Sorter()
    >>> sorter.add(rows)
    >>> sorter.release(3).column("v").to_pylist(), len(sorter)
    (['a', 'b'], 1)
    """

    def __init__(self) -> None:
        # (smallest timestamp, arrival, largest timestamp, rows)
        self._heap: list[tuple[int, int, int, Batch]] = []
        self._arrivals = 0
        self._rows = 0

    def add(self, rows: Batch) -> None:
        n = rows.num_rows
        if n == 0:
            return
        ts = timestamps(rows)
        first, last = (int(ts[0]), int(ts[0])) if n == 1 else (int(ts.min()), int(ts.max()))
        heapq.heappush(self._heap, (first, self._arrivals, last, rows))
        self._arrivals += 1
        self._rows += n

    def release(self, p: int) -> Batch | None:
        """The rows with a timestamp <= p, in canonical order, or None."""
        heap = self._heap
        if not heap or heap[0][0] > p:
            return None
        ready, waiting = [], []
        while heap and heap[0][0] <= p:
            _, arrival, last, rows = heapq.heappop(heap)
            if last <= p:
                ready.append((arrival, rows))
            else:
                passed = timestamps(rows) <= p
                ready.append((arrival, rows.filter(pa.array(passed))))
                waiting.append((arrival, rows.filter(pa.array(~passed))))
        for arrival, rows in waiting:
            ts = timestamps(rows)
            heapq.heappush(heap, (int(ts.min()), arrival, int(ts.max()), rows))
        ready.sort(key=lambda entry: entry[0])
        rows = concat([rows for _, rows in ready])
        self._rows -= rows.num_rows
        return sort(rows)

    def rows(self) -> Batch | None:
        """All rows not yet released, in the order of their arrival, or None."""
        if not self._heap:
            return None
        return concat([rows for _, _, _, rows in sorted(self._heap, key=lambda entry: entry[1])])

    def __len__(self) -> int:
        return self._rows


def _ties(ts: Ints) -> npt.NDArray[np.intp] | None:
    """Where neighbours in sorted timestamps are equal, or None."""
    same = ts[1:] == ts[:-1]
    if not same.any():
        return None
    tied = np.zeros(len(ts), np.bool_)
    tied[1:] = same
    tied[:-1] |= same
    return np.flatnonzero(tied)


def _keys(column: pa.Array) -> Iterator[Key]:
    """What to compare by in turn: validity if there are nulls, NaN or not if the type has it, the value."""
    valid = None
    if column.null_count:
        valid = np.asarray(column.is_valid())
        yield valid
    kind = column.type.id
    if kind == pa.lib.Type_BOOL:
        values: Key = np.asarray(column.cast(pa.int8()).fill_null(0))
    elif kind in _WIDTHS:
        buffer, width = column.buffers()[1], column.type.bit_width // 8
        values = np.frombuffer(buffer, _WIDTHS[kind], len(column), column.offset * width)
        if np.issubdtype(values.dtype, np.floating):
            nan = np.isnan(values)
            yield nan if valid is None else nan & valid
            values = np.where(nan, 0, values)
    else:
        values = np.asarray(pc.rank(column, "ascending", tiebreaker="dense"))
    yield values if valid is None else np.where(valid, values, values.dtype.type(0))
