"""Time windows: [e - window, e) for every multiple e of the slide, closed when the punctuation reaches e.

What Aggregate, TopK and windowed Custom share. Rows are kept once, however many windows they belong to, and
sorted by (timestamp, id) before they are looked at, so that equal tuples give equal bits whatever order they
came in.

A window is emitted only if its inputs were complete before it began: a partial value would carry the id of
the true one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.operators.state import empty, pack, unpack
from anabranch.streams.batch import Batch, Ints, concat, ids, timestamps
from anabranch.streams.punctuation import BEGINNING, later

NEVER = 2**63 - 1
"""Beyond END, so that no punctuation reaches it."""


class Closing(msgspec.Struct, frozen=True):
    """What some windows hold: ``rows`` sorted by (timestamp, id), and per membership the index of the row and
    the end of the window. Memberships are in the order of the rows."""

    rows: Batch
    index: Ints
    ends: Ints

    @property
    def members(self) -> Batch:
        """One row for each membership."""
        rows = self.rows
        if len(self.index) == rows.num_rows and (self.index == np.arange(rows.num_rows)).all():
            return rows
        return rows.take(pa.array(self.index))


class _State(msgspec.Struct, frozen=True):
    punctuation: int
    complete_from: int


class WindowKernel(ABC):
    """Keeps rows until all their windows have closed; what a window yields is ``summarise``'s to say."""

    historic = False
    schema: pa.Schema

    def __init__(self, name: str, window: int, every: int, input_schema: pa.Schema) -> None:
        self.name = name
        self.punctuation = BEGINNING
        self._window = window
        self._every = every
        self._input_schema = input_schema
        self._complete_from = BEGINNING
        self._fresh: list[Batch] = []
        self._kept: Batch | None = None
        # A lower bound of the ends of windows that hold rows: below it a punctuation closes nothing.
        self._next = NEVER

    @abstractmethod
    def summarise(self, closing: Closing) -> Batch | None:
        """The tuples that the windows in ``closing`` yield."""

    def start(self, complete_from: tuple[int, ...]) -> int:
        # A window [e - w, e) is whole if e - w > C, that is from e > C + w on.
        self._complete_from = later(max(complete_from), self._window)
        if self._fresh or self._kept is not None:
            self._next = BEGINNING
        return self._complete_from

    def process(self, port: int, rows: Batch) -> Batch | None:
        ts = timestamps(rows)
        earliest = int(ts[0]) if len(ts) == 1 else int(ts.min())
        end = max(earliest, self.punctuation, self._complete_from) // self._every * self._every + self._every
        self._next = min(self._next, end)
        self._fresh.append(rows)
        return None

    def punctuate(self, port: int, p: int) -> Batch | None:
        before = self.punctuation
        self.punctuation = p
        # Algorithm 3, lines 4-8; most punctuations close nothing and end here.
        return self._close(before, p) if p >= self._next else None

    def _close(self, before: int, p: int) -> Batch | None:
        rows = self._sorted_rows()
        every, ts = self._every, timestamps(rows)
        last = (ts + self._window) // every * every
        first = ts // every * every + every
        np.maximum(first, max(before, self._complete_from) // every * every + every, out=first)
        # Work is proportional to memberships: a jump of the punctuation passes empty windows unseen.
        memberships = np.minimum(last, p // every * every)
        memberships -= first
        memberships //= every
        memberships += 1
        np.maximum(memberships, 0, out=memberships)
        self._keep(rows, first, last, p)
        total = int(memberships.sum())
        if not total:
            return None
        index = np.repeat(np.arange(len(ts)), memberships)
        nth = np.arange(total) - np.repeat(np.cumsum(memberships) - memberships, memberships)
        return self.summarise(Closing(rows, index, first[index] + nth * every))

    def _sorted_rows(self) -> Batch:
        if not self._fresh:
            assert self._kept is not None
            return self._kept
        rows = concat(self._fresh if self._kept is None else [self._kept, *self._fresh])
        self._fresh = []
        return sort_by_id(rows)

    def _keep(self, rows: Batch, first: Ints, last: Ints, p: int) -> None:
        """Lets go of the rows all of whose windows are closed, or will not be emitted."""
        pending = np.maximum(first, p // self._every * self._every + self._every)
        keep = pending <= last
        kept = int(keep.sum())
        self._next = int(pending[keep].min()) if kept else NEVER
        if not kept:
            self._kept = None
        elif kept == rows.num_rows:
            self._kept = rows
        else:
            self._kept = rows.filter(pa.array(keep))

    def discard(self, hi: int, lo: int) -> None:
        """Forgets a row for the windows still open."""
        if self._kept is None:
            return
        his, los = ids(self._kept)
        keep = (his != hi) | (los != lo)
        if keep.any():
            self._kept = self._kept.filter(pa.array(keep))
        else:
            self._kept, self._next = None, NEVER

    def snapshot(self) -> bytes:
        held = self._fresh if self._kept is None else [self._kept, *self._fresh]
        rows = concat(held) if held else empty(self._input_schema)
        return pack(self.name, _State(self.punctuation, self._complete_from), [rows])

    def restore(self, snapshot: bytes) -> None:
        state, (rows,) = unpack(snapshot, self.name, _State, [self._input_schema])
        self.punctuation, self._complete_from = state.punctuation, state.complete_from
        self._fresh, self._kept, self._next = [], None, NEVER
        if rows.num_rows:
            self.process(0, rows)


def sort_by_id(rows: Batch) -> Batch:
    """``rows`` sorted by timestamp, then id."""
    if rows.num_rows == 1:
        return rows
    hi, lo = ids(rows)
    order = np.lexsort((lo, hi, timestamps(rows)))
    if (order[1:] > order[:-1]).all():
        return rows
    return rows.take(pa.array(order))
