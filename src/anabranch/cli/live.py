"""What the commands that talk to live sites have in common: which sites, as whom, and how a run ends."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from anabranch.cli.mistakes import Interrupted, Mistake
from anabranch.cli.simulate import load_query
from anabranch.graph import Graph
from anabranch.log.connection import FAILURES, Access
from anabranch.plan import Plan, check_plan, spread
from anabranch.site import keys
from anabranch.site.config import Deployment, check_tls
from anabranch.site.places import LiveSites
from anabranch.site.questions import plan_at

T = TypeVar("T")
_AGAIN = 3.0


class Target(msgspec.Struct, frozen=True):
    """The live sites of a query, as whom they are spoken to."""

    graph: Graph
    sites: LiveSites
    role: str

    @property
    def names(self) -> tuple[str, ...]:
        return self.sites.topology.names

    def deployment(self, plan: Plan) -> Deployment:
        tls = None if self.sites.security is None else keys.of_client(self.sites.security, self.role)
        servers = {site: self.sites.url(site) for site in self.names}
        return Deployment(self.graph, plan, servers, tls=tls, role=keys.CLIENTS[self.role])

    def access(self, site: str) -> Access:
        return self.deployment(Plan(0, "", {}, {}, (), ())).access(site)

    async def plan(self) -> Plan:
        """The newest that any site follows."""
        asked = [plan_at(self.access(site), self.graph.name, site) for site in self.names]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        plans = [answer for answer in answers if isinstance(answer, Plan)]
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, FAILURES):
                raise answer
        if not plans:
            raise Mistake(
                f"{self.sites.path}: no site answers for query {self.graph.name!r}; are its hosts and ports "
                "right, and do its sites run?"
            )
        return max(plans, key=lambda plan: (plan.epoch, plan.coordinator))


def target(query: Path, sites: Path, role: str) -> Target:
    """Checked as far as that can be done from here."""
    found = Target(load_query(query), LiveSites.load(sites).check(), role)
    if found.sites.security is not None:
        check_tls(keys.of_client(found.sites.security, role))
    return found


def chosen_plan(graph: Graph, sites: LiveSites, plan: Path | None, k: int | None) -> Plan:
    """The one in the file, or one that is drawn, alike for everybody who has the same sites file."""
    if plan is None:
        return spread(graph, sites.topology, min(2, len(sites.topology.sites)) if k is None else k)
    chosen = Plan.load(plan)
    try:
        check_plan(chosen, graph, sites.topology)
    except ValueError as error:
        raise Mistake(f"{plan}: {error}") from None
    return chosen


def until_done(work: Coroutine[Any, Any, T]) -> T:
    """Runs it; on SIGINT or SIGTERM it is cancelled, clears up, and Interrupted is raised."""

    async def guarded() -> T:
        loop = asyncio.get_running_loop()
        task = loop.create_task(work)
        asked = False

        def stop() -> None:
            nonlocal asked
            asked = True
            if not task.done():
                task.cancel()
                # what is told to end in the very moment in which it has got what it waited for, goes on
                loop.call_later(_AGAIN, stop)

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        try:
            return await task
        except asyncio.CancelledError:
            if asked:
                raise Interrupted from None
            raise

    return asyncio.run(guarded())
