"""What the benchmarks of live sites share: a source that is fed at a rate, tuples stamped as they are sent,
and an application that writes down when it got what."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

import msgspec
import numpy as np
import psutil
import pyarrow as pa

from anabranch.graph import Graph
from anabranch.plan import Plan, Subscription, copies
from anabranch.site.cluster import Cluster
from anabranch.site.subscription import Receiver
from anabranch.streams.batch import TIMESTAMP, Batch, Ints, timestamps
from anabranch.topology import Topology

Outcome = TypeVar("Outcome")

SECOND = 1_000_000
APPLICATION = "app"
GRAIN = 0.02
"""Seconds between two sendings."""


def plan_of(graph: Graph, entries: Iterable[str], sites: Iterable[str], near: str) -> Plan:
    """The whole query on each of ``sites``, all sources at ``entries``, one application near a site."""
    points = tuple(entries)
    output = graph.outputs[0].name
    return copies(
        graph,
        {source.name: points for source in graph.sources},
        tuple(sites),
        (Subscription(APPLICATION, output, near),),
    )


def near_each_other(names: Iterable[str]) -> Topology:
    """Sites that a benchmark without emulated links puts on this machine."""
    sites = list(names)
    return Topology.from_rtt([[1] * len(sites) for _ in sites], sites)


def rows(first: int, count: int, ts: Ints) -> pa.RecordBatch:
    """Tuples of the source ``load``; the number of each is its ``load``."""
    number = np.arange(first, first + count)
    return pa.RecordBatch.from_arrays(
        [pa.array(ts, pa.int64()).view(TIMESTAMP), pa.array(number % 50), pa.array(number.astype(float))],
        names=["ts", "key", "load"],
    )


def now_us() -> int:
    return time.time_ns() // 1_000


def run(work: Coroutine[Any, Any, Outcome]) -> Outcome:
    """As ``asyncio.run``, and SIGTERM ends it as an interrupt does: what was started is stopped, what was
    written is removed."""

    async def stoppable() -> Outcome:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        return asyncio.run(stoppable())
    except asyncio.CancelledError:
        raise SystemExit(128 + signal.SIGTERM) from None


class Feed:
    """Sends as many rows a second as ``rate``, stamped with the time at which they are sent, until it is told
    to stop; ``send`` is given them and that time. ``sent``: how many so far."""

    def __init__(self, send: Callable[[pa.RecordBatch, int], Awaitable[None]], rate: float) -> None:
        self.sent = 0
        self._send = send
        self._rate = rate
        self._stopping = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        begun = time.monotonic()
        while not self._stopping.is_set():
            count = int((time.monotonic() - begun) * self._rate) - self.sent
            if count > 0:
                now = now_us()
                await self._send(rows(self.sent, count, np.full(count, now)), now)
                self.sent += count
            await asyncio.sleep(GRAIN)

    async def stop(self) -> None:
        """The number of the rows that were sent is final; raises what has gone wrong."""
        self._stopping.set()
        await self._task


class Arrival(msgspec.Struct, frozen=True):
    """``at``: when it was delivered, in microseconds."""

    at: int
    rows: Batch


class Application:
    """Takes what comes, in the background."""

    def __init__(self, batches: AsyncIterator[Batch], end: Callable[[], Awaitable[None]]) -> None:
        self.arrivals: list[Arrival] = []
        self.received = 0
        self._batches = batches
        self._end = end
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for batch in self._batches:
            self.arrivals.append(Arrival(now_us(), batch))
            self.received += batch.num_rows

    async def until(self, count: int, patience: float) -> None:
        """Until so many tuples have come in all."""
        async with asyncio.timeout(patience):
            while self.received < count:
                if self._task.done():
                    self._task.result()
                await asyncio.sleep(0.01)

    def times(self) -> Ints:
        """When something came."""
        return np.array([arrival.at for arrival in self.arrivals], np.int64)

    def waited(self, since: int, until: int) -> Ints:
        """Of each tuple with a timestamp between these: how long after it, in microseconds, it came."""
        ts = np.concatenate([timestamps(arrival.rows) for arrival in self.arrivals])
        at = np.repeat(self.times(), [arrival.rows.num_rows for arrival in self.arrivals])
        return np.asarray((at - ts)[(ts >= since) & (ts < until)], np.int64)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._end()


def application_of(cluster: Cluster) -> tuple[Receiver, Application]:
    receiver = cluster.receiver(APPLICATION)
    receiver.start()
    return receiver, Application(receiver, receiver.close)


def silences(at: Ints, begin: int, end: int) -> Ints:
    """The pauses, in microseconds, that were not over at ``begin`` and had begun by ``end``; the last one may
    last longer than what came says.

    >>> silences(np.array([1, 2, 5, 9, 20]), 3, 8).tolist(), silences(np.array([1, 2]), 1, 8).tolist()
    ([3, 4], [1, 6])
    """
    before = at[at <= begin][-1:]
    during = at[(at > begin) & (at <= end)]
    after = at[at > end][:1]
    points = [before if len(before) else [begin], during, after if len(after) else [end]]
    return np.diff(np.concatenate(points))


def batch_times(lines: Iterable[bytes], since: int) -> dict[str, float]:
    """Milliseconds, by Spark's names, that a batch took on average, from the journal of an agent; batches
    reported from ``since`` on, in microseconds. ``square``: the mean square of all of a batch."""
    durations: dict[str, list[int]] = {}
    for line in lines:
        told = msgspec.json.decode(line)
        if told["what"] == "engine progress" and told["time"] * SECOND >= since:
            for name, each in told["milliseconds"].items():
                durations.setdefault(name, []).extend(each)
    return {name: float(np.mean(each)) for name, each in durations.items()} | {
        "square": float(np.mean(np.square(durations.get("triggerExecution", [0]), dtype=float))),
        "median": float(np.median(durations.get("triggerExecution", [0]))),
    }


def processes(cluster: Cluster, sites: Iterable[str] | None = None) -> list[psutil.Process]:
    names = cluster.topology.names if sites is None else sites
    return [process for site in names for process in cluster.processes(site)]
