"""What ``anabranch run`` shows: JSON for programs, tables and progress for people."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from anabranch.cli.status import Statuses, tables

_SHOWN = 12
"""Rows of each application that a person sees of what comes in one go."""


class Screen(Protocol):
    def starting(self, sites: Sequence[str], directory: Path) -> None: ...
    def up(self, site: str) -> None: ...
    def rows(self, application: str, rows: Iterable[dict[str, Any]]) -> None: ...
    def status(self, statuses: Statuses) -> None: ...
    def close(self) -> None: ...


class Lines:
    """One object a line."""

    def starting(self, sites: Sequence[str], directory: Path) -> None:
        self.say({"starting": list(sites), "directory": str(directory)})

    def up(self, site: str) -> None:
        self.say({"up": site})

    def rows(self, application: str, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            self.say({"application": application, "row": row})

    def status(self, statuses: Statuses) -> None:
        """Ask for it with ``anabranch status``."""

    def close(self) -> None:
        """Nothing is held open."""

    def say(self, value: Any) -> None:
        print(msgspec.json.encode(value).decode(), flush=True)


class Terminal:
    """Sites with a spinner each until they are up, then rows above a table that follows the sites; where
    nobody watches, the rows alone."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            SpinnerColumn(finished_text="✓"), TextColumn("{task.description}"), console=console
        )
        self._tasks: dict[str, TaskID] = {}
        self._begun = time.monotonic()
        self._live: Live | None = None
        self._counts: dict[str, int] = {}

    def starting(self, sites: Sequence[str], directory: Path) -> None:
        self._begun = time.monotonic()
        self._console.print(
            f"{len(sites)} sites on this machine, under {directory}; look at them with "
            f"`anabranch status QUERY.py {directory}/sites.toml`",
            highlight=False,
            markup=False,
        )
        for site in sites:
            self._tasks[site] = self._progress.add_task(f"{site} is starting", total=1)
        if self._console.is_terminal:
            self._progress.start()

    def up(self, site: str) -> None:
        text = f"{site} is up after {time.monotonic() - self._begun:.1f} s"
        self._progress.update(self._tasks[site], description=text, completed=1)
        if not self._console.is_terminal:
            self._console.print(text, highlight=False)

    def rows(self, application: str, rows: Iterable[dict[str, Any]]) -> None:
        shown = list(rows)
        self._counts[application] = self._counts.get(application, 0) + len(shown)
        for row in shown[:_SHOWN]:
            cells = "  ".join(f"{name}={value}" for name, value in row.items() if name != "ts")
            self._console.print(
                Text.assemble((f"{application}  ", "cyan"), (f"{row['ts']}  ", "dim"), cells), soft_wrap=True
            )
        if len(shown) > _SHOWN:
            self._console.print(f"[dim]and {len(shown) - _SHOWN} more for {application}[/]", highlight=False)

    def status(self, statuses: Statuses) -> None:
        if not self._console.is_terminal:
            return
        if self._live is None:
            self._progress.stop()
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        counts = ", ".join(f"{count:,} for {name}" for name, count in self._counts.items()) or "none yet"
        self._live.update(Group(Text(), tables(statuses), Text(f"results: {counts}", "bold")), refresh=True)

    def close(self) -> None:
        self._progress.stop()
        if self._live is not None:
            self._live.stop()
            self._live = None


def conclude(console: Console, audits: Mapping[str, Any], statuses: Statuses) -> None:
    """The audit, as a person reads it."""
    console.print(tables(statuses))
    table = Table(title="Audit against the ideal run", title_justify="left", title_style="bold", box=None)
    table.add_column("application", no_wrap=True)
    for column in ("ideal", "delivered", "missing", "extra", "longest silence"):
        table.add_column(column, justify="right")
    for name, audit in audits.items():
        table.add_row(
            name,
            "unknown" if audit.expected is None else str(audit.expected),
            str(audit.delivered),
            *(f"[red]{count}[/]" if count else "0" for count in (audit.missing, audit.extra)),
            f"{audit.silence_s:.1f} s",
        )
    console.print()
    console.print(table)
    if any(audit.expected is None for audit in audits.values()):
        console.print("The sites have given the timestamps: there is nothing to compare with.")
    elif all(audit.exact for audit in audits.values()):
        console.print("[bold green]✓ Every application received exactly the ideal run.[/]")
    else:
        console.print("[bold red]✗ An application did not receive the ideal run.[/]")
