"""Tuples without end: one source, drawn at random, each tuple at its time on this machine's clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from anabranch.graph import Source
from anabranch.site.producer import Producer
from anabranch.streams.batch import TIMESTAMP, Batch, Ints, assemble, with_ids
from anabranch.streams.hashing import source_ids
from anabranch.types import Column, arrow_schema

SECOND = 1_000_000
KEYS = 8
_PAUSE = 0.05
_AT_ONCE = 10_000


class Flow:
    """``rate`` tuples a second from ``begin`` on (microseconds). ``entered`` is told every batch before it is
    sent, with the ids that it will have. ``keys``: so many different strings are drawn, as hosts or users, or
    whatever else joins and groups go by."""

    def __init__(
        self,
        source: Source,
        rate: float,
        begin: int,
        seed: int,
        entered: Callable[[str, Batch], None],
        keys: int = KEYS,
    ) -> None:
        self._source = source
        self._every = SECOND / rate
        self._begin = begin
        self._rng = np.random.default_rng(seed)
        self._entered = entered
        self._keys = pa.array([f"key-{n}" for n in range(keys)])
        self.sent = 0

    def arrived(self) -> int:
        """For the producer: what has not been handed over has not arrived, however late the machine is."""
        return min(_now(), self._ts(self.sent))

    def _ts(self, number: int) -> int:
        return self._begin + int(number * self._every)

    async def run(self, producer: Producer, until: asyncio.Event) -> None:
        while not until.is_set():
            count = min(_AT_ONCE, max(0, int((_now() - self._begin) / self._every) - self.sent))
            if count:
                await self._send(producer, count)
            await asyncio.sleep(_PAUSE)

    async def _send(self, producer: Producer, count: int) -> None:
        source, first = self._source, self.sent
        ts: Ints = self._begin + (np.arange(first, first + count) * self._every).astype(np.int64)
        columns = [self._drawn(column, count) for column in source.columns]
        ids = source_ids(source.name, source.name, first, count)
        self._entered(source.name, assemble(ts, *ids, columns, with_ids(arrow_schema(source.columns))))
        rows = pa.RecordBatch.from_arrays(
            [pa.array(ts).view(TIMESTAMP), *columns],
            names=["ts", *(column.name for column in source.columns)],
        )
        await producer.send(rows, int(ts[0]))
        self.sent += count

    def _drawn(self, column: Column, count: int) -> pa.Array:
        rng = self._rng
        match column.type:
            case "string":
                return self._keys.take(pa.array(rng.integers(0, len(self._keys), count)))
            case "double":
                return pa.array(rng.random(count))
            case _:
                drawn = pa.array(rng.integers(0, 1000, count))
                return drawn.cast(arrow_schema((column,)).field(0).type)


def _now() -> int:
    return time.time_ns() // 1000
