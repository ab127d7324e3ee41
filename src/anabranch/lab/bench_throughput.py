"""Rows a second, sustained from where they enter to where the application has them: Anabranch on one site,
on two, and plain Spark between two logs of the same kind, with the same session, source and query.

After rows that warm it up, a known number of rows is sent as fast as they are taken; the time is from the
first of them to the last result. Timestamps are of the rows' own time line, so nobody waits for a clock. The
rows come from this process and the results go to it, whoever computes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import psutil
import pyarrow as pa

from anabranch.lab import bench_agent
from anabranch.lab.bench_live import Application, application_of, near_each_other, plan_of, processes, run
from anabranch.lab.live import engines_ready
from anabranch.lab.plain_spark import PlainSpark
from anabranch.lab.processes import Meter
from anabranch.lab.queries import QUERIES
from anabranch.site.cluster import Cluster
from anabranch.site.config import Spark
from anabranch.site.producer import Producer
from anabranch.streams.batch import TIMESTAMP

SECOND = 1_000_000
NOON = 1_760_000_400 * SECOND
APART = 10
"""Microseconds between two rows of a source."""
KEYS = 50
PATIENCE = 240.0
SETTLES = 2.0
"""Seconds behind the first results. The workers of a driver's first batch are not used again: those that stay
start with the next one, which is to be over before anything is measured."""


class Size(msgspec.Struct, frozen=True):
    """``warm`` rows before, and ``rows`` that count, of each source, in records of ``chunk``."""

    warm: int
    rows: int
    chunk: int = 10_000


SIZES = {
    "stateless": Size(1_000_000, 4_000_000),
    "join": Size(100_000, 500_000),
    "aggregate": Size(1_000_000, 4_000_000),
}


class Took(msgspec.Struct, frozen=True):
    """``cpu_s``: for each site, in seconds a million rows; ``kinds``: the same of all sites, by kind of
    process."""

    rows_s: float
    cpu_s: tuple[float, ...]
    kinds: dict[str, float]


class Side(Protocol):
    """One of those compared, warm or not. ``sites``: the processes of each."""

    application: Application
    streams: tuple[str, ...]

    async def send(self, stream: str, rows: pa.RecordBatch) -> None: ...
    def sites(self) -> list[list[psutil.Process]]: ...


class Plain:
    def __init__(self, plain: PlainSpark, application: Application) -> None:
        self.application = application
        self.streams = tuple(source.name for source in plain.graph.sources)
        self.send = plain.send
        self._plain = plain

    def sites(self) -> list[list[psutil.Process]]:
        return [self._plain.processes()]


class Sites:
    def __init__(self, cluster: Cluster, application: Application, producers: dict[str, Producer]) -> None:
        self.application = application
        self.streams = tuple(producers)
        self._cluster = cluster
        self._producers = producers

    async def send(self, stream: str, rows: pa.RecordBatch) -> None:
        await self._producers[stream].send(rows, int(rows.column(0)[0].value))

    def sites(self) -> list[list[psutil.Process]]:
        return [processes(self._cluster, [site]) for site in self._cluster.topology.names]


def measure(
    kinds: Sequence[str] = tuple(QUERIES),
    sizes: dict[str, Size] = SIZES,
    spark: Spark = Spark(),  # noqa: B008 - frozen
    agent_rows: int = 1_000_000,
) -> dict[str, Any]:
    bench_agent.measure(20_000, 1_000, 1)  # compiled kernels are loaded
    agent = bench_agent.measure(agent_rows, 10_000, 1)
    return {
        "queries": [_compare(kind, sizes[kind], spark) for kind in kinds],
        "agent_rows_s_core": agent["rows_s_core"],
    }


def _compare(kind: str, size: Size, spark: Spark) -> dict[str, Any]:
    plain, one, two = (
        run(_run(side, kind, size))
        for side in (
            lambda directory: plain_side(kind, directory, spark),
            lambda directory: sites_side(kind, 1, directory, spark),
            lambda directory: sites_side(kind, 2, directory, spark),
        )
    )
    return {
        "name": kind,
        "plain_rows_s": round(plain.rows_s),
        "k1_rows_s": round(one.rows_s),
        "k1_over_plain": round(one.rows_s / plain.rows_s, 3),
        "k2_rows_s": round(two.rows_s),
        "k2_cpu_over_k1": round(float(np.mean(two.cpu_s)) / one.cpu_s[0], 3),
        "cpu_s_per_mrows": {
            "plain": round(plain.cpu_s[0], 2),
            "k1": round(one.cpu_s[0], 2),
            "k2": [round(each, 2) for each in two.cpu_s],
        },
        "cpu_s_by_kind": {"plain": plain.kinds, "k1": one.kinds, "k2": two.kinds},
    }


@contextlib.asynccontextmanager
async def plain_side(kind: str, directory: Path, spark: Spark) -> AsyncIterator[Side]:
    async with PlainSpark(kind, directory, spark) as plain:
        application = plain.application()
        try:
            yield Plain(plain, application)
        finally:
            await application.close()


@contextlib.asynccontextmanager
async def sites_side(kind: str, k: int, directory: Path, spark: Spark) -> AsyncIterator[Side]:
    """Each of ``k`` sites is an entry point and runs the query; the application is near the first."""
    graph = QUERIES[kind]()
    names = [f"site{number}" for number in range(1, k + 1)]
    plan = plan_of(graph, names, names, names[0])
    async with contextlib.AsyncExitStack() as stack:
        cluster = Cluster(graph, near_each_other(names), plan, directory, spark=spark)
        await stack.enter_async_context(cluster)
        await engines_ready(cluster)
        _, application = application_of(cluster)
        stack.push_async_callback(application.close)
        producers = {}
        for source in graph.sources:
            # No clock: only what is sent moves the time.
            producer = Producer(
                cluster.deployment(names[0]), source.name, arrived=lambda: NOON, journal=cluster.journal
            )
            producer.start()
            stack.push_async_callback(producer.abandon)
            producers[source.name] = producer
        yield Sites(cluster, application, producers)


async def _run(
    side_in: Callable[[Path], contextlib.AbstractAsyncContextManager[Side]], kind: str, size: Size
) -> Took:
    with tempfile.TemporaryDirectory(prefix="anabranch-") as directory:
        async with side_in(Path(directory)) as side:
            return await _drain(side, kind, size)


async def _drain(side: Side, kind: str, size: Size) -> Took:
    for first, end in ((0, size.warm // 2), (size.warm // 2, size.warm)):
        await _send(side, kind, first, end, size.chunk)
        await side.application.until(results(kind, end), PATIENCE)
        await asyncio.sleep(SETTLES)
    meters = [Meter(site) for site in side.sites()]
    begun = time.time()
    until = size.warm + size.rows
    await _send(side, kind, size.warm, until, size.chunk)
    await _send(side, kind, until + SECOND, until + SECOND + 1, 1)  # closes the windows
    expected = results(kind, until, closed=True)
    await side.application.until(expected, PATIENCE)
    seconds = side.application.arrivals[-1].at / SECOND - begun
    spent = [meter.spent(site) for meter, site in zip(meters, side.sites(), strict=True)]
    if side.application.received > expected:
        raise RuntimeError(
            f"{side.application.received} results of {kind} instead of {expected}: what was measured is not "
            "the query"
        )
    rows = size.rows * len(side.streams)
    kinds = {kind: sum(each.get(kind, 0.0) for each in spent) for kind in {k for each in spent for k in each}}
    return Took(
        rows / seconds,
        tuple(sum(each.values()) / rows * 1e6 for each in spent),
        {kind: round(each / rows * 1e6, 2) for kind, each in sorted(kinds.items())},
    )


async def _send(side: Side, kind: str, first: int, end: int, chunk: int) -> None:
    for at in range(first, end, chunk):
        for stream in side.streams:
            await side.send(stream, rows_of(kind, stream, at, min(chunk, end - at)))


def rows_of(kind: str, stream: str, first: int, count: int) -> pa.RecordBatch:
    """The same for every source. What is joined has each key once."""
    number = np.arange(first, first + count)
    key = number if kind == "join" else number % KEYS
    return pa.RecordBatch.from_arrays(
        [
            pa.array(NOON + number * APART, pa.int64()).view(TIMESTAMP),
            pa.array(key),
            pa.array(number.astype(float)),
        ],
        names=["ts", "key", "ms" if stream == "rtt" else "load"],
    )


def results(kind: str, sent: int, closed: bool = False) -> int:
    """Of the first so many rows; ``closed``: something much later has been sent.

    >>> results("stateless", 1_000, closed=True), results("stateless", 1_000)
    (1001, 1000)
    >>> results("aggregate", 200_000), results("aggregate", 200_000, closed=True)
    (50, 100)
    """
    if kind != "aggregate":
        return sent + closed
    window = SECOND // APART
    if not closed:
        return KEYS * ((sent - 1) // window)
    return KEYS * (sent // window) + min(KEYS, sent % window)
