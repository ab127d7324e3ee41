"""One side of a join: the tuples that may still meet a partner, found by key.

Numbers (timestamp, id, key) stand in one int64 table with hash chains over it; the rows themselves in a few
Arrow chunks whose sizes grow geometrically, so that a stream of single rows costs a small constant each.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import pyarrow as pa

from anabranch.streams.batch import Batch, Ints, concat
from anabranch.streams.compiled import INT, INTS, LANES, READ_INTS, compiled

# Rows of the table of numbers.
_TS, _HI, _LO, _KEY1, _KEY2, _NEXT = range(6)
_FIRST_CAPACITY = 64
_MOST_CHUNKS = 16
FEW = 12
"""So many single rows are cheaper one by one than with Arrow's take."""


@compiled(INT, LANES, INTS, INT, READ_INTS, READ_INTS, READ_INTS, READ_INTS, READ_INTS)
def _insert(table: Ints, heads: Ints, used: int, ts: Ints, hi: Ints, lo: Ints, key1: Ints, key2: Ints) -> int:
    for i in range(len(ts)):
        row = used + i
        table[_TS, row], table[_HI, row], table[_LO, row] = ts[i], hi[i], lo[i]
        table[_KEY1, row], table[_KEY2, row] = key1[i], key2[i]
        slot = key1[i] & (len(heads) - 1)
        table[_NEXT, row] = heads[slot]
        heads[slot] = row
    return used + len(ts)


@compiled(INT, LANES, INTS, INT)
def _rehash(table: Ints, heads: Ints, used: int) -> int:
    heads[:] = -1
    for row in range(used):
        slot = table[_KEY1, row] & (len(heads) - 1)
        table[_NEXT, row] = heads[slot]
        heads[slot] = row
    return used


@compiled(INT, LANES, INTS, READ_INTS, READ_INTS, READ_INTS, INT, INTS, INTS)
def _matches(
    table: Ints, heads: Ints, ts: Ints, key1: Ints, key2: Ints, within: int, new: Ints, old: Ints
) -> int:
    """Writes the matching pairs as far as ``new`` and ``old`` have room, and returns how many there are."""
    found = 0
    for i in range(len(ts)):
        row = heads[key1[i] & (len(heads) - 1)]
        while row >= 0:
            # Algorithm 2, line 3: the window first.
            if (
                abs(ts[i] - table[_TS, row]) < within
                and table[_KEY1, row] == key1[i]
                and table[_KEY2, row] == key2[i]
            ):
                if found < len(new):
                    new[found], old[found] = i, row
                found += 1
            row = table[_NEXT, row]
    return found


class JoinBuffer:
    """Tuples of one input, each with its key."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.count = 0
        self._table = np.empty((6, _FIRST_CAPACITY), np.int64)
        self._heads = np.full(_FIRST_CAPACITY, -1, np.int64)
        self._chunks: list[Batch] = []
        self._ends: list[int] = []
        self._room = np.empty(64, np.int64), np.empty(64, np.int64)
        self._compact_at = _FIRST_CAPACITY

    def add(self, rows: Batch, ts: Ints, hi: Ints, lo: Ints, key1: Ints, key2: Ints) -> None:
        self._reserve(self.count + len(ts))
        self.count = _insert(self._table, self._heads, self.count, ts, hi, lo, key1, key2)
        self._chunks.append(rows)
        self._ends.append(self.count)
        if len(self._chunks) > _MOST_CHUNKS:
            self._merge_chunks()

    def matches(self, ts: Ints, key1: Ints, key2: Ints, within: int) -> tuple[Ints, Ints]:
        """Pairs (position in the arguments, row here) of equal keys less than ``within`` apart."""
        new, old = self._room
        found = _matches(self._table, self._heads, ts, key1, key2, within, new, old)
        if found > len(new):
            self._room = new, old = np.empty(2 * found, np.int64), np.empty(2 * found, np.int64)
            _matches(self._table, self._heads, ts, key1, key2, within, new, old)
        return new[:found], old[:found]

    def numbers(self, rows: Ints) -> tuple[Ints, Ints, Ints]:
        """Timestamps and ids of ``rows``."""
        return self._table[_TS, rows], self._table[_HI, rows], self._table[_LO, rows]

    def take(self, rows: Ints) -> Batch:
        """``rows``, which must not descend."""
        taken: list[Batch] = []
        at, count = 0, len(rows)
        while at < count:
            place = bisect_right(self._ends, rows[at])
            chunk, end = self._chunks[place], self._ends[place]
            until = count if rows[-1] < end else int(np.searchsorted(rows, end))
            inside = rows[at:until] - (end - chunk.num_rows)
            if len(inside) <= FEW:
                taken += [chunk.slice(row, 1) for row in inside.tolist()]
            else:
                taken.append(chunk.take(pa.array(inside)))
            at = until
        return concat(taken)

    def evict(self, behind: int) -> None:
        """Tuples with a timestamp <= ``behind`` have met all their partners (Algorithm 2, line 7).

        They leave when they are as many as those that stay, so that each is moved once on average; until then
        they match nothing, because nothing near them can arrive any more.
        """
        if self.count < self._compact_at:
            return
        keep = np.flatnonzero(self._table[_TS, : self.count] > behind)
        if not len(keep):
            self.clear()
            return
        if len(keep) < self.count:
            self._chunks = [self.take(keep)]
            self._table[:, : len(keep)] = self._table[:, keep]
            self.count = len(keep)
            self._ends = [self.count]
            _rehash(self._table, self._heads, self.count)
        self._compact_at = 2 * self.count + _FIRST_CAPACITY

    def rows(self) -> Batch | None:
        return concat(self._chunks) if self._chunks else None

    def _reserve(self, count: int) -> None:
        capacity = self._table.shape[1]
        if count <= capacity:
            return
        while capacity < count:
            capacity *= 2
        table = np.empty((6, capacity), np.int64)
        table[:, : self.count] = self._table[:, : self.count]
        self._table, self._heads = table, np.empty(capacity, np.int64)
        _rehash(table, self._heads, self.count)

    def _merge_chunks(self) -> None:
        """Merges the last chunks until the one before is more than twice as long as they are together."""
        first, length = len(self._chunks), 0
        while first and (
            len(self._chunks) - first < _MOST_CHUNKS // 2 or self._chunks[first - 1].num_rows <= 2 * length
        ):
            first -= 1
            length += self._chunks[first].num_rows
        self._chunks[first:] = [concat(self._chunks[first:])]
        self._ends[first:] = [self.count]
