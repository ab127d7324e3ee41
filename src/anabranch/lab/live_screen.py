"""The live demonstration as a user sees it in a terminal, while it happens and at its end."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from anabranch.lab.demo_screen import cell, none_is_good, sparkline
from anabranch.lab.live_demo import APPLICATION, COPIES, CUT_OFF, ENTRIES, KILLED, NEAR, Outcome, Scene
from anabranch.streams.batch import Batch, timestamps

SECOND = 1_000_000


def introduce(console: Console, scene: Scene) -> None:
    """What is about to happen."""
    text = Text.assemble(
        ("Which hosts under load see a slow network? ", "bold"),
        "Loads and latencies of six hosts enter at two places, are united and joined by host; the worst "
        "latency of each host goes out twice a second to the application ",
        (APPLICATION, "bold cyan"),
        f", near {NEAR}. Every site is a log server, an agent and, where the query runs, a Spark driver of "
        f"its own; the delays between them are real. First {KILLED} is killed, then {CUT_OFF} is cut off.",
    )
    title = "[bold]Anabranch[/]: one streaming query on several sites, its branches rejoined"
    console.print(Panel(text, title=title, border_style="cyan"))
    table = Table(box=None, padding=(0, 2))
    for head in ("site", f"RTT to {NEAR}", "sources enter", "the query"):
        table.add_column(head)
    for site in scene.topology.names:
        rtt = (scene.topology.delay_at(site, NEAR, 0) + scene.topology.delay_at(NEAR, site, 0)) / 1000
        enters = ", ".join(name for name, sites in ENTRIES.items() if site in sites)
        table.add_row(f"[bold cyan]{site}[/]", f"{rtt:.0f} ms", enters, "a copy" if site in COPIES else "")
    console.print(table)
    console.print()


class Narrator:
    """Prints what is done, and second by second what the application receives."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._second: int | None = None
        self._count = 0
        self._waits: list[float] = []
        self._most = 1

    def say(self, words: str) -> None:
        style = "bold red" if "killed" in words or "cut off" in words else "green"
        self._line(Text(words, style))

    def _line(self, text: Text) -> None:
        now = f"{time.monotonic() - self._started:>5.0f} s  "
        self._console.print(Text.assemble((now, "dim"), text))

    def heard(self, application: str, rows: Batch, now: int) -> None:
        second = now // SECOND
        if self._second is None:
            self._line(Text("the first result", "bold green"))
            self._second = second
        while second > self._second:
            self._most = max(self._most, self._count)
            wait = float(np.median(self._waits)) if self._waits else float("nan")
            self._line(cell(self._count, wait, self._most))
            self._second += 1
            self._count, self._waits = 0, []
        self._count += rows.num_rows
        self._waits += (np.maximum(now - timestamps(rows), 0) / 1000).tolist()


def conclude(console: Console, outcome: Outcome) -> None:
    """The latencies, who came first, and the audit."""
    run, verdict = outcome.run, outcome.audit
    console.print()
    console.print("[bold]Latency of each second[/] (logarithmic; a gap is silence)")
    console.print(f"  {sparkline(_waits(outcome))}", highlight=False)
    console.print()
    console.print("[bold]Whose copy came first[/]")
    firsts = run.first_arrivals[APPLICATION]
    for site, count in firsts.items():
        share = count / max(sum(firsts.values()), 1)
        console.print(f"  {site:<12} {'█' * round(40 * share):<40} {share:.0%}", highlight=False)
    console.print()
    table = Table(
        title="The audit: what the application received, against the ideal run",
        title_justify="left",
        title_style="bold",
        show_header=False,
    )
    table.add_column("")
    table.add_column("", justify="right")
    table.add_row("results of the ideal run", str(verdict.expected))
    table.add_row("delivered", str(verdict.delivered))
    table.add_row("missing", none_is_good(verdict.missing))
    table.add_row("extra", none_is_good(verdict.extra))
    table.add_row("longest silence", f"{verdict.silence_s:.1f} s")
    table.add_row("latency, median", f"{verdict.latency_ms.p50:,.0f} ms")
    table.add_row("latency, 99 of 100", f"{verdict.latency_ms.p99:,.0f} ms")
    table.add_row("from the start to the first result", f"{run.up_s + outcome.warm:.0f} s")
    console.print(table)
    if verdict.exact:
        console.print(
            f"[bold green]✓ {KILLED} was killed and {CUT_OFF} cut off; every result arrived once, and none "
            "other.[/]"
        )
    else:
        console.print("[bold red]✗ The application did not receive the ideal run's results.[/]")


def _waits(outcome: Outcome) -> list[float]:
    """For every second from the first result on, the median latency in ms; NaN where there was none."""
    table = outcome.run.deliveries[APPLICATION]
    ts, delivered = (table.column(name).cast(pa.int64()).to_numpy() for name in ("ts", "delivered"))
    if not len(delivered):
        return [float("nan")]
    second = (delivered - delivered[0]) // SECOND
    waited = np.maximum(delivered - ts, 0) / 1000
    return [
        float(np.median(waited[second == n])) if (second == n).any() else float("nan")
        for n in range(int(second[-1]) + 1)
    ]
