"""``anabranch status``: how the sites of a query stand, once or again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from anabranch.cli.live import Target
from anabranch.log.connection import FAILURES
from anabranch.site.questions import status_at
from anabranch.site.status import BranchStatus, SiteStatus

EVERY = 1.0
"""Seconds between two looks."""

Statuses = Mapping[str, SiteStatus | None]
"""None: the site does not answer."""


async def look(target: Target) -> dict[str, SiteStatus | None]:
    """At all sites at once."""

    async def one(site: str) -> SiteStatus | None:
        try:
            return await status_at(target.access(site), target.graph.name, site)
        except FAILURES:
            return None

    answers = await asyncio.gather(*(one(site) for site in target.names))
    return dict(zip(target.names, answers, strict=True))


async def watch(target: Target, console: Console) -> None:
    """Until it is cancelled."""
    with Live(console=console, auto_refresh=False) as screen:
        while True:
            screen.update(tables(await look(target)), refresh=True)
            await asyncio.sleep(EVERY)


def report(statuses: Statuses) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        "sites": {site: None if s is None else msgspec.to_builtins(s) for site, s in statuses.items()},
        "answering": sum(status is not None for status in statuses.values()),
    }


def tables(statuses: Statuses) -> Group:
    parts: list[Any] = [_sites(statuses)]
    branches = [(s.site, branch) for s in statuses.values() if s is not None for branch in s.branches]
    if branches:
        parts += [Text(), _branches(branches)]
    return Group(*parts)


def _table(title: str, *columns: str, right: tuple[str, ...] = ()) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left")
    return table


def _sites(statuses: Statuses) -> Table:
    table = _table(
        "Sites",
        "site",
        "plan",
        "fragments",
        "entry points",
        "peers",
        "punctuation age",
        "waiting",
        "events",
        right=("plan", "peers", "punctuation age", "waiting"),
    )
    for site, status in statuses.items():
        if status is None:
            table.add_row(site, "[red]no answer[/]")
            continue
        ages = [stream.punctuation_age for stream in status.log if stream.punctuation_age is not None]
        reached = sum(status.peers.values())
        table.add_row(
            site,
            f"{status.epoch}",
            " | ".join(", ".join(fragment) for fragment in status.fragments) or "-",
            ", ".join(status.entries) or "-",
            _good(f"{reached}/{len(status.peers)}", reached == len(status.peers)),
            f"{max(ages):,.1f} s" if ages else "-",
            f"{status.log_waiting}",
            _events(status),
        )
    return table


def _events(status: SiteStatus) -> str:
    told = [f"{count} {kind}" for kind, count in status.events.items()]
    told += [f"refused: {count} {why}" for why, count in status.refused.items()]
    return ", ".join(told) or "-"


def _branches(branches: list[tuple[str, BranchStatus]]) -> Table:
    table = _table(
        "Branches",
        "to",
        "stream",
        "from",
        "",
        "position",
        "tuples",
        "came first",
        "lag",
        right=("position", "tuples", "came first", "lag"),
    )
    for site, branch in branches:
        table.add_row(
            site,
            branch.stream,
            branch.source,
            _good("open" if branch.connected else "closed", branch.connected),
            f"{branch.position:,}",
            f"{branch.received:,}",
            f"{branch.first:.0%}",
            "-" if branch.lag is None else f"{branch.lag:,.1f} s",
        )
    return table


def _good(text: str, good: bool) -> str:
    return f"[{'green' if good else 'red'}]{text}[/]"
