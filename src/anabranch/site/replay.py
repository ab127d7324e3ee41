"""Feeds a source from a table, each tuple at its time: a replay, or whatever a generator has drawn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa

from anabranch.graph import Source
from anabranch.input_tables import conform
from anabranch.site.producer import Producer
from anabranch.streams.batch import Batch, Ints, ints

SECOND = 1_000_000


class Pace:
    """The time line of inputs, tied to this machine's clock: what has timestamp ``begin`` arrives at once,
    the rest ``speed`` times as fast as it says. ``started``: by this machine's monotonic clock, if not
    now."""

    def __init__(self, begin: int, speed: float = 1.0, started: float | None = None) -> None:
        self._begin = begin
        self._speed = speed
        self._started = time.monotonic() if started is None else started

    def now(self) -> int:
        return self._begin + int((time.monotonic() - self._started) * SECOND * self._speed)

    async def until(self, arrival: int) -> None:
        wait = (arrival - self.now()) / SECOND / self._speed
        if wait > 0:
            await asyncio.sleep(wait)


class Replay:
    """One source's table on a pace. ``arrived`` is for its producer: what has not been handed over yet has
    not arrived, however late the machine is."""

    def __init__(self, source: Source, table: pa.Table, pace: Pace, grain: float = 0.01) -> None:
        self._pace = pace
        self._offers = list(_offers(source, table, round(grain * SECOND)))
        self._next: int | None = self._offers[0][0] if self._offers else None

    def arrived(self) -> int:
        now = self._pace.now()
        return now if self._next is None else min(now, self._next)

    async def feed(self, producer: Producer) -> None:
        """Until all has been handed over; the producer is not closed."""
        for i, (arrival, rows) in enumerate(self._offers):
            await self._pace.until(arrival)
            await producer.send(rows, arrival)
            self._next = self._offers[i + 1][0] if i + 1 < len(self._offers) else None


def first_arrival(source: Source, table: pa.Table) -> int | None:
    return next((arrival for arrival, _ in _offers(source, table, 0)), None)


def _offers(source: Source, table: pa.Table, grain: int) -> Iterator[tuple[int, Batch]]:
    """The tuples by the time they arrive: those of less than ``grain`` together, where their timestamps allow
    it, so that none is late that would not have been alone."""
    rows = conform(source, table, f"source {source.name!r}").combine_chunks()
    if not rows.num_rows:
        return
    names = [column.name for column in source.columns]
    stamped = source.timestamps == "source"
    batch = rows.select((["ts"] if stamped else []) + names).to_batches()[0]
    apart = "arrival" in rows.column_names and "arrival" not in names
    arrivals: Ints = ints(rows.column("arrival" if apart else "ts").chunk(0).view(pa.int64()))
    cuts = [0]
    for i in range(1, len(arrivals)):
        together = not apart and arrivals[i] - arrivals[cuts[-1]] < grain
        if arrivals[i] != arrivals[i - 1] and not together:
            cuts.append(i)
    for first, end in pairwise([*cuts, len(arrivals)]):
        yield int(arrivals[first]), batch.slice(first, end - first)
