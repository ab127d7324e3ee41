"""A query on live sites that is fed without end, and what its applications receive, held against the ideal
run as it goes: for faults that come one after the other, and for runs of hours."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping

from anabranch.lab.auditor import Auditor, Difference
from anabranch.lab.flow import KEYS, SECOND, Flow
from anabranch.lab.live import LiveSites
from anabranch.log.connection import FAILURES
from anabranch.protocols.events import Gap
from anabranch.protocols.roles import historic
from anabranch.site.producer import Producer
from anabranch.site.status import SiteStatus
from anabranch.site.subscription import Receiver
from anabranch.streams.punctuation import BEGINNING, END

_PAUSE = 0.1
_BEHIND = 10.0
"""Seconds of event time that a branch may be behind its stream and still count as caught up."""


class Stuck(RuntimeError):
    """Something that should have happened has not: the sentence says what, and what stands in its way."""


class Endless:
    """``sites`` run already. ``rates``: tuples a second of each source; ``keys``: as of a
    :class:`anabranch.lab.flow.Flow`. Use it as an asynchronous context."""

    def __init__(self, sites: LiveSites, rates: Mapping[str, float], seed: int, keys: int = KEYS) -> None:
        self.sites = sites
        self.auditor = Auditor(sites.graph, sites.plan)
        self.gaps: list[Gap] = []
        self._rates = rates
        self._seed = seed
        self._keys = keys
        self._receivers: dict[str, Receiver] = {}
        self._taken: dict[str, int] = {}
        self._flows: list[Flow] = []
        self._feeding: list[asyncio.Task[None]] = []
        self._over = asyncio.Event()
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Endless:
        await self._tasks.__aenter__()
        cluster = self.sites.cluster
        self._receivers = {s.name: cluster.receiver(s.name) for s in self.sites.plan.subscriptions}
        for name, receiver in self._receivers.items():
            self._taken[name] = BEGINNING
            self._tasks.create_task(self._take(name, receiver))
        begin = now() // SECOND * SECOND
        for number, source in enumerate(self.sites.graph.sources):
            seed = self._seed * 1000 + number
            flow = Flow(source, self._rates[source.name], begin, seed, self.auditor.enter, self._keys)
            producer = Producer(
                cluster.deployment(self.sites.plan.entries[source.name][0]),
                source.name,
                arrived=flow.arrived,
                journal=cluster.journal,
            )
            self._flows.append(flow)
            self._feeding.append(self._tasks.create_task(self._feed(flow, producer)))
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._feeding if error[0] is not None else ():
            task.cancel()
        await self._tasks.__aexit__(*error)  # type: ignore[arg-type]

    async def _feed(self, flow: Flow, producer: Producer) -> None:
        async with producer:
            await flow.run(producer, self._over)

    async def _take(self, name: str, receiver: Receiver) -> None:
        async with receiver:
            while (taken := await receiver.take()) is not None:
                self.auditor.receive(name, taken[0])
                self._taken[name] = taken[1]
        self.gaps += receiver.gaps

    # --- how far it is

    @property
    def sent(self) -> int:
        return sum(flow.sent for flow in self._flows)

    @property
    def reached(self) -> int:
        """All applications have received everything with timestamps up to this one."""
        for name, receiver in self._receivers.items():
            if receiver.idle:
                self._taken[name] = receiver.punctuation
        return min(self._taken.values())

    async def until(self, timestamp: int, patience: float) -> None:
        """Returns once all applications have received everything up to ``timestamp``."""
        waits = time.monotonic()
        while self.reached < timestamp:
            if time.monotonic() - waits > patience:
                stand = {n: _ago(each.punctuation) for n, each in self._receivers.items()}
                raise Stuck(
                    f"after {patience:g} s the applications are not where they should be, {_ago(timestamp)}; "
                    f"their punctuations: {stand}"
                )
            await asyncio.sleep(_PAUSE)

    async def whole(self, timestamp: int, patience: float) -> None:
        """Returns once every site is up, has all its engines and branches, and every stream of its log has
        come to ``timestamp``."""
        waits = time.monotonic()
        while lacking := await self._lacking(timestamp):
            if time.monotonic() - waits > patience:
                raise Stuck(f"after {patience:g} s not all sites are well: {'; '.join(lacking)}")
            await asyncio.sleep(5 * _PAUSE)

    async def _lacking(self, timestamp: int) -> list[str]:
        lacking = []
        for site in self.sites.cluster.topology.names:
            try:
                status = await self.sites.cluster.status(site)
            except FAILURES as error:
                lacking.append(f"{site} does not answer ({type(error).__name__})")
                continue
            lacking += [f"{site}: {what}" for what in self._ails(status, timestamp)]
        return lacking

    def _ails(self, status: SiteStatus, timestamp: int) -> list[str]:
        ails = [f"no line to {peer}" for peer, connected in status.peers.items() if not connected]
        if self.sites.spark is not None:
            graph = self.sites.graph
            outside = [f for f in status.fragments if not any(historic(graph.node(name)) for name in f)]
            if outside and not status.driver:
                ails.append("no Spark driver")
            ails += [f"no engine of {f[0]}" for f in outside if f[0] not in status.engines]
        for branch in status.branches:
            where = f"branch of {branch.stream} from {branch.source}"
            if not branch.connected:
                ails.append(f"{where} is not connected")
            elif branch.lag is None or branch.lag > _BEHIND:
                ails.append(f"{where} is {branch.lag} s behind")
        most = (now() - timestamp) / SECOND
        ails += [
            f"{stream.stream} is {stream.punctuation_age} s old"
            for stream in status.log
            if stream.punctuation_age is None or stream.punctuation_age > most
        ]
        return ails

    # --- comparing

    def check(self) -> list[Difference]:
        """Everything received so far that no later tuple can precede."""
        return self.auditor.check(self.reached)

    async def end(self, patience: float) -> list[Difference]:
        """Nothing more enters; what the applications received to the end of their streams is compared."""
        self._over.set()
        await self.until(END, patience)
        return self.check()


def now() -> int:
    return time.time_ns() // 1000


def _ago(timestamp: int) -> str:
    with contextlib.suppress(OverflowError, ValueError, OSError):
        return time.strftime("%H:%M:%S", time.gmtime(timestamp / SECOND))
    return "the end" if timestamp == END else "none"
