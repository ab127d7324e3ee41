"""A live application: subscribes to an output at every site that has it, and receives each tuple once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from anabranch.plan import Plan, PlanError
from anabranch.protocols.application import Application
from anabranch.protocols.effects import CloseBranch, Deliver, OpenBranch, Report
from anabranch.protocols.events import Gap
from anabranch.protocols.messages import Message, PlanOffer
from anabranch.protocols.records import Record
from anabranch.site.client import Client
from anabranch.site.clock import Clock
from anabranch.site.config import Deployment, Schemas
from anabranch.site.journal import Journal
from anabranch.site.links import Links
from anabranch.streams.batch import Batch

BUFFER_BYTES = 16 << 20
"""Of tuples that the application has not taken yet, before its branches are asked for no more."""


class Receiver:
    """One subscription of the plan, as an asynchronous iterator of batches: ``_ts``, ``_hi``, ``_lo``, the
    output's columns. It ends when the stream does.

    ``ordered``: in order of timestamps, whatever the output says. ``after``: only what has a later timestamp.
    ``view`` makes of a plan the one that is followed, and so gives branches to a reader that no plan knows.
    """

    def __init__(
        self,
        deployment: Deployment,
        name: str,
        journal: Journal | None = None,
        ordered: bool = False,
        after: int | None = None,
        view: Callable[[Plan], Plan] | None = None,
    ) -> None:
        self._view = view or (lambda plan: plan)
        plan = self._view(deployment.plan)
        subscription = next((s for s in plan.subscriptions if s.name == name), None)
        if subscription is None:
            known = [s.name for s in plan.subscriptions]
            raise PlanError(f"application {name!r}: the plan has no such subscription; it has {known}")
        output = next(o for o in deployment.graph.outputs if o.name == subscription.output)
        self.name = name
        self.journal = journal or Journal()
        self._clock = Clock()
        self._settings = deployment.settings
        self._plan = plan
        self._protocol = Application(
            name, output.stream, ordered or output.order == "timestamp", deployment.settings, self._clock()
        )
        if after is not None:
            self._protocol.begin_after(after)
        self.gaps: list[Gap] = []
        """What was reported as missing; whoever reads them takes them out."""
        self._links = Links(
            name,
            deployment.graph.name,
            deployment.access,
            Schemas(deployment.graph).rows,
            deployment.settings.branch_window,
            self,
            self.journal,
        )
        self._client = Client(
            deployment,
            name,
            {
                OpenBranch: self._links.open,
                CloseBranch: self._links.close_branch,
                Deliver: self._deliver,
                Report: self._report,
            },
            self._hear,
            self.journal,
        )
        self._delivered: asyncio.Queue[tuple[Batch, int] | None] = asyncio.Queue()
        self.waiting = 0
        """Bytes that the application has not taken yet."""
        self._ended = False

    @property
    def punctuation(self) -> int:
        """No later tuple has a timestamp up to this one."""
        return self._protocol.rejoin.frontier.punctuation

    @property
    def first_arrivals(self) -> dict[str, int]:
        """For each branch, how many tuples it brought first."""
        rejoin = self._protocol.rejoin
        return {
            site: int(ranks[0]) if len(ranks) else 0
            for site, ranks in zip(rejoin.names, rejoin.filter.ranks, strict=True)
        }

    @property
    def received(self) -> dict[str, int]:
        """For each branch, how many tuples it brought, first or not."""
        rejoin = self._protocol.rejoin
        return dict(zip(rejoin.names, rejoin.received, strict=True))

    @property
    def promises(self) -> dict[str, int]:
        """For each branch, up to which timestamp it has brought everything that it will bring."""
        return {site: reader.promise for site, reader in self._protocol.rejoin.readers.items()}

    def start(self) -> None:
        self._follow(self._plan)
        self._tick()

    async def __aenter__(self) -> Receiver:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def __anext__(self) -> Batch:
        taken = await self.take()
        if taken is None:
            raise StopAsyncIteration
        return taken[0]

    async def take(self) -> tuple[Batch, int] | None:
        """The next batch, and a timestamp: with it, all tuples up to that one have been taken. None at the
        end."""
        if self._ended and self._delivered.empty():
            return None
        taken = await self._delivered.get()
        self._client.check()
        if taken is not None:
            was_busy = self.is_busy("")
            self.waiting -= taken[0].nbytes
            if was_busy and not self.is_busy(""):
                self._links.go_on(self._protocol.stream)
        return taken

    def keep(self, cursor: int) -> None:
        """All up to ``cursor`` is safe with the reader: what follows must be there when it comes back, and is
        not trimmed before it has said this again."""
        self._protocol.kept = cursor

    @property
    def idle(self) -> bool:
        """Whether all that has come has been taken."""
        return self._delivered.empty()

    async def close(self) -> None:
        await self._client.close()
        await self._links.close()

    # --- what happens

    def _follow(self, plan: Plan) -> None:
        self._client.executor.do(self._protocol.connect, self._clock(), self._view(plan))
        self._client.talk_to(self._protocol.carriers)

    def _tick(self) -> None:
        self._client.executor.do(self._protocol.on_tick, self._clock())
        self._check_end()
        self._client.executor.after(self._settings.tick, self._tick)

    def _hear(self, sender: str, message: Message) -> None:
        if isinstance(message, PlanOffer):
            self._follow(message.plan)

    def _deliver(self, effect: Deliver) -> None:
        self.waiting += effect.rows.nbytes
        self._delivered.put_nowait((effect.rows, self.punctuation))

    def _report(self, effect: Report) -> None:
        self.journal.event(effect.event)
        if isinstance(effect.event, Gap):
            self.gaps.append(effect.event)

    def _check_end(self) -> None:
        if (self._protocol.complete or self._client.failure is not None) and not self._ended:
            self._ended = True
            self._delivered.put_nowait(None)

    # --- branches

    def on_opened(self, stream: str, source: str, position: int, resumed: bool) -> None:
        self._client.executor.do(self._opened, source, position, resumed)

    def _opened(self, source: str, position: int, resumed: bool) -> None:
        self._protocol.rejoin.opened(self._clock(), source, position, resumed)

    def on_record(self, stream: str, source: str, position: int, record: Record) -> None:
        self._client.executor.do(self._protocol.on_record, self._clock(), source, position, record)
        self._check_end()

    def on_reset(self, stream: str, source: str) -> None:
        self._client.executor.do(self._protocol.rejoin.reset, self._clock(), source)

    def is_busy(self, stream: str) -> bool:
        return self.waiting > BUFFER_BYTES


class Sites(Protocol):
    """Whoever has sites running, as :class:`anabranch.site.cluster.Cluster`."""

    def near(self, output: str) -> Deployment:
        """For an application of ``output``."""
        ...


async def subscribe(
    sites: Sites | Deployment, output: str, journal: Journal | None = None
) -> AsyncIterator[Batch]:
    """Each tuple of ``output`` once, as the plan's first subscription to it receives them."""
    deployment = sites if isinstance(sites, Deployment) else sites.near(output)
    names = [s.name for s in deployment.plan.subscriptions if s.output == output]
    if not names:
        known = sorted({s.output for s in deployment.plan.subscriptions})
        raise PlanError(f"nobody subscribes to {output!r} in the plan; there are subscriptions to {known}")
    async with Receiver(deployment, names[0], journal) as receiver:
        async for rows in receiver:
            yield rows
