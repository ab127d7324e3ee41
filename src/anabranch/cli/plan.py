"""``anabranch plan``: the plan that live sites follow, shown and replaced."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
from rich.table import Table

from anabranch.cli.live import Target
from anabranch.cli.mistakes import Mistake
from anabranch.cli.status import look
from anabranch.log.connection import FAILURES
from anabranch.plan import Plan, check_plan
from anabranch.site.questions import offer

_PATIENCE = 20.0


class Applied(msgspec.Struct, frozen=True):
    """``behind``: sites that answer and do not follow it; ``silent``: those that do not answer."""

    epoch: int
    follow: tuple[str, ...]
    behind: tuple[str, ...]
    silent: tuple[str, ...]

    @property
    def done(self) -> bool:
        return bool(self.follow) and not self.behind

    @property
    def sentence(self) -> str:
        parts = [f"plan {self.epoch} is followed by {', '.join(self.follow) or 'no site'}"]
        if self.behind:
            parts.append(f"not by {', '.join(self.behind)}: look at Rejected in their agent.jsonl")
        if self.silent:
            parts.append(f"{', '.join(self.silent)} did not answer")
        return "; ".join(parts)


async def apply(target: Target, path: Path) -> Applied:
    """Offers it until all that answer follow it, or patience ends."""
    given = Plan.load(path)
    now = await target.plan()
    plan = msgspec.structs.replace(given, epoch=max(given.epoch, now.epoch + 1))
    try:
        check_plan(plan, target.graph, target.sites.topology)
    except ValueError as error:
        raise Mistake(f"{path}: {error}") from None
    until = asyncio.get_running_loop().time() + _PATIENCE
    while True:
        offers = [offer(target.access(site), target.graph.name, site, plan) for site in target.names]
        for outcome in await asyncio.gather(*offers, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, FAILURES):
                raise outcome
        await asyncio.sleep(0.2)
        statuses = await look(target)
        wanted = (plan.epoch, plan.coordinator)
        follow = [name for name, s in statuses.items() if s and (s.epoch, s.coordinator) >= wanted]
        behind = [name for name, s in statuses.items() if s and (s.epoch, s.coordinator) < wanted]
        silent = [name for name, s in statuses.items() if s is None]
        applied = Applied(plan.epoch, tuple(follow), tuple(behind), tuple(silent))
        if applied.done or asyncio.get_running_loop().time() > until:
            return applied


def table(target: Target, plan: Plan) -> Table:
    title = f"Plan {plan.epoch} of {target.graph.name}" + (
        f", by {plan.coordinator}" if plan.coordinator else ""
    )
    shown = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for column in ("site", "sources enter", "operators", "applications"):
        shown.add_column(column)
    for site in target.names:
        enters = [name for name, sites in plan.entries.items() if site in sites]
        runs = [name for name, sites in plan.replicas.items() if site in sites]
        near = [subscription.name for subscription in plan.subscriptions if subscription.site == site]
        shown.add_row(site, *(", ".join(names) or "-" for names in (enters, runs, near)))
    return shown
