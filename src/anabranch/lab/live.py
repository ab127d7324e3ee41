"""A query on live sites of this machine, with the links of a topology between them: inputs paced on real
time, faults at their times, and all that the applications receive written down with the time of it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from anabranch.graph import Graph
from anabranch.lab.live_faults import Fate, Fault
from anabranch.plan import Plan
from anabranch.protocols.settings import Settings
from anabranch.site.cluster import Cluster, ClusterError
from anabranch.site.config import Spark
from anabranch.site.subscription import Receiver
from anabranch.site.wan import Wan
from anabranch.streams.batch import TIMESTAMP, Batch, with_ids
from anabranch.streams.punctuation import BEGINNING
from anabranch.topology import Topology
from anabranch.types import arrow_schema

SECOND = 1_000_000
_FOR_A_WHILE = 3.0
Inputs = Mapping[str, pa.Table]


class LiveRun(msgspec.Struct, frozen=True):
    """``deliveries``: for each application what it received, in order, with the time of it, ``delivered``.
    ``begun``: when the first tuple came, on the same clock. ``up_s``: until the engines were ready.
    ``first_arrivals``: for each application how many tuples each branch brought first. ``done``: what was
    done when, in seconds after ``begun``."""

    inputs: Inputs
    deliveries: dict[str, pa.Table]
    stalled: dict[str, int]
    first_arrivals: dict[str, dict[str, int]]
    begun: int
    up_s: float
    done: tuple[tuple[float, str], ...]
    accepted: dict[str, pa.Table] = {}


class Stage:
    """What a script has to do with: seconds count from ``begun``, when the first tuple comes."""

    def __init__(self, sites: LiveSites, begun: int) -> None:
        self.done: list[tuple[float, str]] = []
        """What was done when."""
        self.receivers: dict[str, Receiver] = {}
        self._sites = sites
        self._begun = begun

    def now(self) -> float:
        return time.time() - self._begun / SECOND

    async def befall(self, *faults: Fault) -> None:
        await self._sites.befall(faults, self._begun / SECOND, self.done)

    async def abreast(self, latest: float) -> None:
        """Until all branches to the applications have been at most a second of event time apart for a while,
        or it is ``latest``."""
        since = self.now()
        while self.now() < min(since + _FOR_A_WHILE, latest):
            if not all(map(_abreast, self.receivers.values())):
                since = self.now()
            await asyncio.sleep(0.1)


Script = Callable[[Stage], Coroutine[Any, Any, None]]


def _abreast(receiver: Receiver) -> bool:
    promises = receiver.promises.values()
    return min(promises) > BEGINNING and max(promises) - min(promises) <= SECOND


class LiveSites:
    """The cluster and the links; ``say`` is told in words what happens. Use it as an asynchronous context."""

    def __init__(
        self,
        graph: Graph,
        topology: Topology,
        plan: Plan,
        directory: Path,
        spark: Spark | None,
        settings: Settings | None = None,
        say: Callable[[str], None] = lambda words: None,
    ) -> None:
        self.graph = graph
        self.plan = plan
        self.wan = Wan(topology)
        self.cluster = Cluster(
            graph, topology, plan, directory, settings, resolve=self.wan.address, spark=spark
        )
        self._sites = topology.names
        self.spark = spark
        self._say = say
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> LiveSites:
        begun = time.monotonic()
        await self.wan.start({site: self.cluster.server_of(site, site) for site in self._sites})
        self._stack.push_async_callback(self.wan.close)
        try:
            await self._stack.enter_async_context(self.cluster)
            self._say(f"{len(self._sites)} sites are up")
            if self.spark is not None:
                await engines_ready(self.cluster, self._say)
        except BaseException:
            await self._stack.aclose()
            raise
        self.up_s = round(time.monotonic() - begun, 1)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def play(
        self,
        inputs_from: Callable[[int], Inputs],
        script: Script,
        patience: float,
        heard: Callable[[str, Batch, int], None] = lambda application, rows, now: None,
    ) -> LiveRun:
        """Feeds what ``inputs_from`` gives for a time line that begins now, while the script goes on. Ends
        with the applications' streams, or ``patience`` seconds after the inputs."""
        begun = (time.time_ns() // 1000 // SECOND + 1) * SECOND
        inputs = inputs_from(begun)
        received: dict[str, list[tuple[int, Batch]]] = {s.name: [] for s in self.plan.subscriptions}
        stalled: dict[str, int] = {}
        firsts: dict[str, dict[str, int]] = {}
        stage = Stage(self, begun)

        async def take(name: str, fed: asyncio.Event) -> None:
            async with self.cluster.receiver(name) as receiver:
                stage.receivers[name] = receiver
                try:
                    async for rows in _within(receiver, fed, patience):
                        now = time.time_ns() // 1000
                        received[name].append((now, rows))
                        heard(name, rows, now)
                except TimeoutError:
                    stalled[name] = receiver.punctuation
                firsts[name] = receiver.first_arrivals

        fed = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for name in received:
                tasks.create_task(take(name, fed))
            await asyncio.sleep(max(0.0, begun / SECOND - time.time()))
            failing = tasks.create_task(script(stage))
            await self.cluster.feed(inputs)
            await failing
            fed.set()
        tables = {name: self._table(name, batches) for name, batches in received.items()}
        done = tuple(sorted(stage.done))
        return LiveRun(inputs, tables, stalled, firsts, begun, self.up_s, done)

    async def befall(self, faults: Sequence[Fault], begun: float, done: list[tuple[float, str]]) -> None:
        """Lets them happen, at their times after ``begun`` (seconds since 1970); returns when the last is
        over. ``done`` is given what was done when."""

        def happens(words: str) -> None:
            done.append((round(time.time() - begun, 1), words))
            self._say(words)

        fate = Fate(self.cluster, self.wan, happens)
        await asyncio.gather(*(fate.befall(fault, begun) for fault in faults))

    def _table(self, name: str, batches: list[tuple[int, Batch]]) -> pa.Table:
        output = next(s.output for s in self.plan.subscriptions if s.name == name)
        stream = next(o.stream for o in self.graph.outputs if o.name == output)
        table = pa.Table.from_batches(
            [rows for _, rows in batches], with_ids(arrow_schema(self.graph.schema(stream)))
        )
        names = table.column_names
        table = table.select([names[0], *names[3:], names[1], names[2]]).rename_columns(
            ["ts", *names[3:], "_hi", "_lo"]
        )
        delivered = pa.array([now for now, rows in batches for _ in range(rows.num_rows)], pa.int64())
        return table.append_column("delivered", delivered.view(TIMESTAMP))


async def engines_ready(
    cluster: Cluster, say: Callable[[str], None] = lambda words: None, patience: float = 120.0
) -> None:
    """Until Spark is up wherever the plan wants it."""
    until = time.monotonic() + patience
    for site in dict.fromkeys(site for sites in cluster.plan.replicas.values() for site in sites):
        while not (await cluster.status(site)).driver:
            if time.monotonic() > until:
                raise ClusterError(
                    f"Spark does not start at site {site!r}; look at {cluster.directory / site}"
                )
            await asyncio.sleep(0.2)
        say(f"Spark is up at {site}")


async def _within(
    receiver: AsyncIterator[Batch], fed: asyncio.Event, patience: float
) -> AsyncIterator[Batch]:
    """What comes; a TimeoutError if ``fed`` has been set and nothing more comes for ``patience`` seconds."""
    ending: asyncio.Task[object] = asyncio.create_task(fed.wait())
    try:
        while True:
            following = asyncio.ensure_future(anext(receiver))
            try:
                await asyncio.wait({following, ending}, return_when=asyncio.FIRST_COMPLETED)
                try:
                    rows = await (following if not ending.done() else asyncio.wait_for(following, patience))
                except StopAsyncIteration:
                    return
            finally:
                following.cancel()
            yield rows
    finally:
        ending.cancel()
