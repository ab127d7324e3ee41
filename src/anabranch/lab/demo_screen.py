"""The demonstration as a user sees it in a terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from anabranch.lab.audit import Audit
from anabranch.lab.demo import (
    APPLICATION,
    CUT_OFF,
    ENTRIES,
    KILLED,
    NEAR,
    SECOND,
    Outcome,
    Scenario,
    first_arrivals,
)
from anabranch.sim.run import Run

PACE = 0.07
"""Seconds of real time for a simulated one, where someone watches."""
LEVELS = "▁▂▃▄▅▆▇█"
PARTS = " ▏▎▍▌▋▊▉"
BAR = 12
CELL = BAR + 16

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def introduce(console: Console, scene: Scenario) -> None:
    """What is about to happen."""
    text = Text.assemble(
        ("Which hosts under load see a slow network? ", "bold"),
        "Loads and latencies of six hosts enter at four places around the world, are united and joined by "
        "host; the worst latency of each host goes out twice a second to the application ",
        (APPLICATION, "bold cyan"),
        f", near {NEAR}. The same inputs and the same faults meet two plans: every operator on "
        f"{len(scene.plan.replicas['worst'])} sites, and every operator on one.",
    )
    title = "[bold]Anabranch[/]: one streaming query on several sites, its branches rejoined"
    console.print(Panel(text, title=title, border_style="cyan"))
    console.print(_sites(scene))
    console.print()


def _sites(scene: Scenario) -> Table:
    table = Table(title="The plan", title_justify="left", title_style="bold", box=None, padding=(0, 2))
    table.add_column("site")
    table.add_column(f"RTT to {NEAR}", justify="right")
    table.add_column("sources enter (first choice in bold)")
    table.add_column("operators")
    for site in scene.topology.names:
        rtt = (scene.topology.delay_at(site, NEAR, 0) + scene.topology.delay_at(NEAR, site, 0)) / 1000
        enters = [
            f"[bold]{name}[/]" if sites[0] == site else name
            for name, sites in ENTRIES.items()
            if site in sites
        ]
        runs = f"all {len(scene.graph.operators)}" if site in scene.plan.replicas["worst"] else ""
        if site in scene.alone.replicas["worst"]:
            runs += ", and the single copy"
        table.add_row(f"[bold cyan]{site}[/]" if runs else site, f"{rtt:.0f} ms", ", ".join(enters), runs)
    return table


def narrate(console: Console, outcome: Outcome) -> None:
    """Second by second what the application received, and what happened meanwhile."""
    scene = outcome.scenario
    received = [_per_second(run, scene) for run in (outcome.run, outcome.run_alone)]
    most = int(received[0][0][: scene.seconds].max(initial=1))
    heads = "".join(f"{label:<{CELL}}" for label in ("replicated", "single copy"))
    console.print("[bold]At the application, second by second[/]: results, and their median latency")
    console.print(f"[bold]        {heads}[/]", highlight=False)
    for second in range(scene.seconds + 1):
        for text in _happens(scene, second):
            console.print(Text.assemble((f"{second:>4} s  ", "dim"), text))
        cells = [cell(int(counts[second]), float(waits[second]), most) for counts, waits in received]
        console.print(Text.assemble((f"{second:>4} s  ", "dim"), *cells))
        if console.is_terminal:
            time.sleep(PACE)


def _per_second(run: Run, scene: Scenario) -> tuple[Counts, Floats]:
    """For every second, how many results the application received, and their median latency in ms."""
    table = run.deliveries[APPLICATION]
    ts, delivered = (table.column(name).cast(pa.int64()).to_numpy() for name in ("ts", "delivered"))
    second = np.minimum((delivered - scene.begin) // SECOND, scene.seconds)
    waited = np.maximum(delivered - ts, 0) / 1000
    counts = np.bincount(second, minlength=scene.seconds + 1)
    return counts, np.array(
        [np.median(waited[second == n]) if count else np.nan for n, count in enumerate(counts)]
    )


def cell(count: int, wait: float, most: int) -> Text:
    """A bar, the number of results, and their latency."""
    if not count:
        return Text(f"{'silence':<{CELL}}", style="bold red")
    eighths = round(8 * BAR * min(count / most, 1))
    bar = "█" * (eighths // 8) + (PARTS[eighths % 8] if eighths % 8 else "")
    late = f"{wait:,.0f} ms" if wait else ""
    return Text.assemble(
        (f"{bar:<{BAR}}", "green" if wait < 1000 else "yellow"), f"{count:>4}", (f"{late:>10}  ", "dim")
    )


def _happens(scene: Scenario, second: int) -> list[Text]:
    moments = (
        (scene.down[0], f"✗ {KILLED} is killed", "bold red"),
        (scene.apart[0], f"✂ {CUT_OFF} is cut off from everyone", "bold red"),
        (scene.apart[1], f"↻ {CUT_OFF} is back", "bold green"),
        (scene.down[1], f"↻ {KILLED} restarts, with its log and nothing else", "bold green"),
        (scene.seconds, "the inputs end, and with them the windows that are still open", "dim"),
    )
    return [Text(text, style) for at, text, style in moments if int(at) == second]


def conclude(console: Console, outcome: Outcome) -> None:
    """The latencies, who came first, and the audit."""
    scene = outcome.scenario
    console.print()
    console.print("[bold]Latency of each second[/] (logarithmic; a gap is silence)")
    for label, run in (("replicated", outcome.run), ("single copy", outcome.run_alone)):
        waits = _per_second(run, scene)[1][: scene.seconds]
        console.print(f"  {label:<12} {sparkline(waits)}", highlight=False)
    console.print()
    console.print("[bold]Whose copy came first[/]")
    for site, share in first_arrivals(outcome.run).items():
        console.print(f"  {site:<12} {'█' * round(40 * share):<40} {share:.0%}", highlight=False)
    console.print()
    console.print(_verdicts(outcome))
    if outcome.kept_its_word:
        console.print(
            "[bold green]✓ Every result arrived once, none other, and the application noticed nothing.[/]"
        )
    else:
        console.print("[bold red]✗ The application did not receive the ideal run's results.[/]")


def sparkline(values: Sequence[float] | Floats) -> str:
    """One character for each value, by its logarithm; a space where there is none.

    >>> sparkline([100.0, 200.0, float("nan"), 10000.0])
    '▁▂ █'
    """
    levels = np.log(np.maximum(np.asarray(values, np.float64), 1e-3))
    low, high = np.nanmin(levels), np.nanmax(levels)
    scaled = (levels - low) / max(high - low, 1e-9)
    return "".join(" " if np.isnan(level) else LEVELS[round(7 * float(level))] for level in scaled)


def _verdicts(outcome: Outcome) -> Table:
    table = Table(
        title="The audit: what the application received, against the ideal run",
        title_justify="left",
        title_style="bold",
    )
    table.add_column("")
    table.add_column(f"replicated ({len(outcome.scenario.plan.replicas['worst'])} sites)", justify="right")
    table.add_column("single copy", justify="right")
    audits = (outcome.audit, outcome.audit_alone)
    table.add_row("results of the ideal run", *(str(audit.expected) for audit in audits))
    table.add_row("delivered", *(str(audit.delivered) for audit in audits))
    table.add_row("missing", *(none_is_good(audit.missing) for audit in audits))
    table.add_row("extra", *(none_is_good(audit.extra) for audit in audits))
    table.add_row("longest silence", *(_silence(audit) for audit in audits))
    table.add_row("latency, median", *(f"{audit.latency_ms.p50:,.0f} ms" for audit in audits))
    table.add_row("latency, 99 of 100", *(f"{audit.latency_ms.p99:,.0f} ms" for audit in audits))
    return table


def none_is_good(count: int) -> str:
    return f"[red]{count}[/]" if count else "[green]0[/]"


def _silence(audit: Audit) -> str:
    return f"[{'green' if audit.silence_s < 1 else 'red'}]{audit.silence_s:.1f} s[/]"
