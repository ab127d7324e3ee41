"""``anabranch simulate``: a user's query, sites, inputs and faults; audited against the ideal run."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from anabranch.cli.mistakes import MISTAKES, Mistake
from anabranch.graph import Graph
from anabranch.inputs import load_inputs
from anabranch.lab.audit import Audit, audit
from anabranch.plan import Plan, check_plan, spread
from anabranch.query import Query
from anabranch.sim.faults import Fault, check_faults, load_faults
from anabranch.sim.run import Run, simulate
from anabranch.topology import Topology

T = TypeVar("T")


class Job(msgspec.Struct, frozen=True):
    graph: Graph
    topology: Topology
    inputs: dict[str, pa.Table]
    plan: Plan
    faults: tuple[Fault, ...]
    seed: int


class Result(msgspec.Struct, frozen=True):
    run: Run
    audits: dict[str, Audit]

    @property
    def exact(self) -> bool:
        return all(each.exact for each in self.audits.values())


def prepare(
    query: Path,
    sites: Path,
    inputs: Sequence[str],
    plan: Path | None,
    faults: Path | None,
    k: int | None,
    seed: int,
    fetched: Collection[str] = (),
) -> Job:
    """Reads and checks everything; whatever is wrong is a sentence that names its file. ``fetched``: sources
    that come in another way than from inputs."""
    graph = load_query(query)
    topology = Topology.load(sites)
    tables = load_inputs(graph, paths(inputs, "--inputs"), fetched)
    if plan is None:
        chosen = spread(graph, topology, min(2, len(topology.sites)) if k is None else k, seed=seed)
    else:
        chosen = Plan.load(plan)
        _named(plan, lambda: check_plan(chosen, graph, topology))
    failing = () if faults is None else load_faults(faults)
    if faults is not None:
        _named(faults, lambda: check_faults(failing, graph, topology))
    return Job(graph, topology, tables, chosen, failing, seed)


def run(job: Job) -> Result:
    run = simulate(job.graph, job.inputs, job.topology, job.plan, job.faults, seed=job.seed)
    return Result(run, audit(job.graph, job.inputs, job.plan, run))


def load_query(path: Path) -> Graph:
    """The query that a Python file defines as ``q``. Modules beside the file can be imported."""
    try:
        code = compile(path.read_bytes(), str(path), "exec")
    except OSError as error:
        raise Mistake(f"{path}: cannot be read ({error.strerror or error}); check the path") from None
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise Mistake(f"{path}{line}: not Python ({getattr(error, 'msg', error)}); correct it") from None
    sys.path.insert(0, str(path.resolve().parent))
    defined: dict[str, Any] = {"__name__": "__query__", "__file__": str(path)}
    try:
        exec(code, defined)  # noqa: S102 - the query file is the user's own program
    except MISTAKES as error:
        raise Mistake(f"{path}, line {_line(path, error)}: {error}") from None
    except (Exception, SystemExit) as error:
        kind = type(error).__name__
        raise Mistake(f"{path}, line {_line(path, error)}: {kind}: {error}; correct it") from None
    query = defined.get("q")
    if not isinstance(query, Query):
        found = "it defines no q" if query is None else f"q is {type(query).__name__}"
        raise Mistake(f"{path}: {found}; define the query as q = ab.Query('...')")
    return _named(path, lambda: query.graph)


def _line(path: Path, error: BaseException) -> int:
    """The line of ``path`` that was being run when the error came up."""
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)
    ]
    return lines[-1] or 1 if lines else 1


def _named(path: Path, check: Callable[[], T]) -> T:
    try:
        return check()
    except MISTAKES as error:
        raise Mistake(f"{path}: {error}") from None


def paths(given: Sequence[str], option: str) -> dict[str, Path]:
    """NAME=FILE, of each name one."""
    found = {}
    what = "source" if option == "--inputs" else "output"
    for each in given:
        name, equals, file = each.partition("=")
        if not (name and equals and file):
            raise Mistake(f"{option} {each}: write it as {what.upper()}=FILE, such as load=load.csv")
        if name in found:
            raise Mistake(f"{option} {each}: {what} {name!r} is there twice; give each {what} one file")
        found[name] = Path(file)
    return found


def report(job: Job, result: Result) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        "query": job.graph.name,
        "exact": result.exact,
        "applications": result.audits,
        "events": [{"at_s": time / 1e6, **msgspec.to_builtins(event)} for time, event in result.run.events],
        "faults": len(job.faults),
        "sites": job.topology.names,
        "bytes": sum(use.bytes for use in result.run.metrics.links.values()),
        "digest": result.run.digest,
    }


def show(console: Console, job: Job, result: Result) -> None:
    console.print(_plan(job))
    if job.faults:
        console.print("\n[bold]Faults[/]")
        for fault in job.faults:
            console.print(f"  {_described(fault)}", highlight=False)
    console.print()
    console.print(_audits(result))
    _show_events(console, result.run)
    if result.exact:
        console.print("[bold green]✓ Every application received exactly the ideal run.[/]")
    else:
        console.print("[bold red]✗ An application did not receive the ideal run.[/]")


def _described(fault: Fault) -> str:
    fields = {name: getattr(fault, name) for name in fault.__struct_fields__ if name != "plan"}
    return f"{type(fault).__name__}: " + ", ".join(f"{name} {value}" for name, value in fields.items())


def _plan(job: Job) -> Table:
    table = Table(
        title=f"Plan of {job.graph.name}", title_justify="left", title_style="bold", box=None, padding=(0, 2)
    )
    for column in ("site", "sources enter", "operators", "applications"):
        table.add_column(column)
    for site in job.topology.names:
        enters = [name for name, sites in job.plan.entries.items() if site in sites]
        runs = [name for name, sites in job.plan.replicas.items() if site in sites]
        near = [subscription.name for subscription in job.plan.subscriptions if subscription.site == site]
        table.add_row(site, ", ".join(enters), ", ".join(runs), ", ".join(near))
    return table


def _audits(result: Result) -> Table:
    title = "Audit against the ideal run"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    table.add_column("application", no_wrap=True)
    for column in ("ideal", "delivered", "missing", "extra", "silence", "p50", "p99"):
        table.add_column(column, justify="right")
    for name, each in result.audits.items():
        table.add_row(
            name if each.complete else f"{name} [red](stands still)[/]",
            str(each.expected),
            str(each.delivered),
            *(f"[red]{count}[/]" if count else "0" for count in (each.missing, each.extra)),
            f"{each.silence_s:.1f} s",
            *(f"{wait:,.0f} ms" for wait in (each.latency_ms.p50, each.latency_ms.p99)),
        )
    return table


def _show_events(console: Console, run: Run) -> None:
    """One line for all events of a kind about one thing at one place."""
    groups: dict[tuple[str, str, str], list[float]] = {}
    for time, event in run.events:
        about = next(
            getattr(event, f) for f in ("stream", "source", "operator", "sender") if hasattr(event, f)
        )
        groups.setdefault((type(event).__name__, about, event.at), []).append(time / 1e6)
    if groups:
        console.print("[bold]Events[/] (--json tells all)")
    for (kind, about, at), times in groups.items():
        when = (
            f"at {times[0]:.3f} s"
            if len(times) == 1
            else f"{len(times)} times from {times[0]:.3f} to {times[-1]:.3f} s"
        )
        console.print(f"  {kind}: {about} at {at}, {when}", highlight=False, markup=False)
