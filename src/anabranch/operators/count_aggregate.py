"""CountAggregate: per group, ``count`` tuples every ``every`` tuples, in canonical order (Algorithm 4).

A window ends at the group's tuple number n if n >= count and (n - count) is a multiple of ``every``. Its
result has the timestamp of its last tuple, and its id is that of (operator, n, group).

Which tuple is number n depends on all of history. A replica whose input is not complete from the beginning
therefore waits, until it is given the snapshot of a peer.

>>> from anabranch.graph import Column, CountAggregate, Graph, Source
>>> source = Source("rtt", (Column("host", "string"), Column("ms", "double")))
>>> pairs = CountAggregate("pairs", "rtt", 2, 1, ("host",), (("total", "sum(ms)"),))
>>> kernel = CountAggregateKernel(pairs, Graph("q", (source,), (pairs,), ()))
>>> rows = pa.RecordBatch.from_pydict(
...     {"_ts": [9, 1, 5], "_hi": [0, 0, 0], "_lo": [1, 2, 3], "host": ["a"] * 3, "ms": [4.0, 1.0, 2.0]},
...     schema=with_ids(pa.schema({"host": pa.string(), "ms": pa.float64()})))
>>> kernel.process(0, rows), kernel.punctuate(0, 5).column("total").to_pylist()
(None, [3.0])
>>> kernel.punctuate(0, 9).column("total").to_pylist()
[6.0]
"""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.graph import CountAggregate, Graph
from anabranch.operators.aggregate import window_bounds
from anabranch.operators.columns import positions
from anabranch.operators.filter import select
from anabranch.operators.groups import group_by_id, group_values, places_in_runs
from anabranch.operators.sql import compile_aggregates
from anabranch.operators.state import empty, pack, unpack
from anabranch.operators.windows import sort_by_id
from anabranch.streams.batch import Batch, Ints, assemble, concat, timestamps, with_ids
from anabranch.streams.hashing import window_ids
from anabranch.streams.order import Sorter, sort
from anabranch.streams.punctuation import BEGINNING, END
from anabranch.types import arrow_schema

_COUNTS = pa.schema([("hi", pa.int64()), ("lo", pa.int64()), ("n", pa.int64())])


class _State(msgspec.Struct, frozen=True):
    """``latest``: the largest timestamp counted or punctuated, short of END."""

    punctuation: int
    latest: int


class CountAggregateKernel:
    historic = True

    def __init__(self, operator: CountAggregate, graph: Graph) -> None:
        columns = graph.schema(operator.input)
        self.name = operator.name
        self.schema = with_ids(arrow_schema(graph.schema(operator.name)))
        self.punctuation = BEGINNING
        self._count = operator.count
        self._every = operator.every
        self._by = positions(operator.by, columns)
        self._aggregation = compile_aggregates(operator.aggregates, columns)
        self._input_schema = with_ids(arrow_schema(columns))
        self._required = BEGINNING
        self._complete_from = BEGINNING
        self._latest = BEGINNING
        self._pending = Sorter()
        # Per group: how many tuples so far, and of these the last ones that windows to come will hold.
        self._counts: dict[tuple[int, int], int] = {}
        self._kept = empty(self._input_schema)

    @property
    def waiting(self) -> bool:
        """Whether history is missing: nothing is emitted, and the punctuation stands still."""
        return self._required > self.punctuation

    def start(self, complete_from: tuple[int, ...]) -> int:
        self._required = complete_from[0]
        return END if self.waiting else self._complete_from

    def process(self, port: int, rows: Batch) -> Batch | None:
        known = timestamps(rows) > self.punctuation
        fresh = rows if known.all() else select(rows, known)
        if fresh is not None:
            self._pending.add(fresh)
        return None

    def punctuate(self, port: int, p: int) -> Batch | None:
        if self.waiting or p <= self.punctuation:
            return None
        self.punctuation = p
        # Algorithm 4, lines 1-6; what looks equal is taken in the order of ids.
        released = self._pending.release(p)
        if p != END:
            self._latest = p
        elif released is not None:
            self._latest = int(timestamps(released).max())
        return None if released is None else self._count_windows(sort(sort_by_id(released)))

    def _count_windows(self, released: Batch) -> Batch | None:
        """Algorithm 4, lines 7-15, for all rows at once."""
        before = self._kept.num_rows
        rows = concat([self._kept, released])
        keys = [rows.column(i) for i in self._by]
        hi, lo = window_ids(self.name, np.zeros(rows.num_rows, np.int64), keys)
        group, firsts = group_by_id(hi, lo)
        names = list(zip(hi[firsts].tolist(), lo[firsts].tolist(), strict=True))
        held = np.bincount(group[:before], minlength=len(firsts))
        base = np.array([self._counts.get(name, 0) for name in names]) - held
        order = np.argsort(group, kind="stable")
        place = places_in_runs(group[order])
        number = base[group[order]] + place + 1

        new = place >= held[group[order]]
        closes = new & (number >= self._count) & ((number - self._count) % self._every == 0)
        closed = np.flatnonzero(closes)
        closed = closed[np.argsort(order[closed])]
        results = self._summarise(rows, keys, order, closed, number[closed]) if len(closed) else None

        totals = base + np.bincount(group, minlength=len(firsts))
        self._counts.update(zip(names, totals.tolist(), strict=True))
        next_end = self._count + (np.maximum(totals - self._count, -1) // self._every + 1) * self._every
        keep = np.empty(rows.num_rows, np.bool_)
        keep[order] = number > (next_end - self._count)[group[order]]
        self._kept = select(rows, keep) or empty(self._input_schema)
        return results

    def _summarise(self, rows: Batch, keys: list[pa.Array], order: Ints, closed: Ints, number: Ints) -> Batch:
        members = order[(closed[:, None] + np.arange(1 - self._count, 1)).ravel()]
        window = np.repeat(np.arange(len(closed)), self._count)
        first, last = order[closed - self._count + 1], order[closed]
        ts = timestamps(rows)
        groups = [group_values(key, pa.array(last)) for key in keys]
        return assemble(
            ts[last],
            *window_ids(self.name, number, groups),
            [
                *window_bounds(ts[first], ts[last]),
                *groups,
                *self._aggregation.apply(rows.take(pa.array(members)), window, len(closed)),
            ],
            self.schema,
        )

    def snapshot(self) -> bytes:
        """As of the punctuation: whoever restores it is fed every later row from a log of its own."""
        names = list(self._counts)
        counts = pa.RecordBatch.from_arrays(
            [
                pa.array([hi for hi, _ in names], pa.int64()),
                pa.array([lo for _, lo in names], pa.int64()),
                pa.array(self._counts.values(), pa.int64()),
            ],
            schema=_COUNTS,
        )
        return pack(self.name, _State(self.punctuation, self._latest), [counts, self._kept])

    def restore(self, snapshot: bytes) -> None:
        """Takes the history up to the snapshot's punctuation; rows up to there that were or will be fed are
        dropped. A snapshot older than the history at hand changes nothing.

        One of a stream that has ended is as of any time behind the last tuple: END itself, as the time that a
        stream is complete from, would say that nothing is known yet.
        """
        state, (counts, kept) = unpack(snapshot, self.name, _State, [_COUNTS, self._input_schema])
        since = state.punctuation if state.punctuation != END else max(state.latest, self._required)
        if since < self.punctuation:
            return
        self.punctuation = self._complete_from = since
        self._latest = state.latest
        hi, lo, n = (column.to_pylist() for column in counts.columns)
        self._counts = dict(zip(zip(hi, lo, strict=True), n, strict=True))
        self._kept = kept
        fed, self._pending = self._pending.rows(), Sorter()
        if fed is not None:
            self.process(0, fed)
