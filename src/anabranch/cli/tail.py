"""``anabranch tail``: what an application receives, printed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Protocol

import msgspec
from rich.console import Console
from rich.text import Text as Styled

from anabranch.cli.live import Target
from anabranch.cli.mistakes import Mistake
from anabranch.plan import Plan
from anabranch.site import ndjson
from anabranch.site.journal import Journal
from anabranch.site.subscription import Receiver


class Printer(Protocol):
    def show(self, row: dict[str, Any]) -> None: ...


class Lines:
    def show(self, row: dict[str, Any]) -> None:
        print(msgspec.json.encode(row).decode(), flush=True)


class Text:
    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, row: dict[str, Any]) -> None:
        cells = "  ".join(f"{name}={value}" for name, value in row.items() if name != "ts")
        self._console.print(Styled.assemble((f"{row['ts']}  ", "dim"), cells), soft_wrap=True)


def application(plan: Plan, name: str) -> str:
    """The application of this name, or the first of an output of this name."""
    for subscription in plan.subscriptions:
        if subscription.name == name:
            return name
    for subscription in plan.subscriptions:
        if subscription.output == name:
            return subscription.name
    known = ", ".join(f"{s.name} (of {s.output})" for s in plan.subscriptions) or "none"
    raise Mistake(f"nobody subscribes to {name!r} in the plan; the applications are {known}")


async def follow(target: Target, output: str, limit: int | None, printer: Printer) -> None:
    plan = await target.plan()
    left = limit
    async with Receiver(target.deployment(plan), application(plan, output), Journal()) as receiver:
        async for batch in receiver:
            rows: Iterator[dict[str, Any]] = ndjson.rows(batch)
            for row in rows if left is None else islice(rows, left):
                printer.show(row)
            if left is not None:
                left -= min(left, batch.num_rows)
                if not left:
                    return
