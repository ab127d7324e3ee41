"""``anabranch fuzz``: what it prints, and its exit status."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from anabranch.fuzz.case import Case, CaseError, load
from anabranch.fuzz.check import check
from anabranch.fuzz.draw import draw
from anabranch.fuzz.runner import Failure, Report, fuzz


class Single(msgspec.Struct, frozen=True):
    """What ``--case`` and ``--replay`` report with ``--json``."""

    klass: str
    failed: bool
    digest: str
    sentences: tuple[str, ...]


def command(
    runs: int = 300,
    seed: int = 1,
    *,
    json: bool = False,
    workers: int | None = None,
    case: int | None = None,
    replay: Path | None = None,
    out: Path = Path("fuzz-failures"),
) -> int:
    """Runs random cases, or one case again. Exit status: 0 if every run passed, 2 if a file holds no case."""
    if replay is not None:
        try:
            return _single(load(replay), json)
        except CaseError as error:
            print(error, file=sys.stderr)
            return 2
    if case is not None:
        return _single(draw(seed, case), json)
    if json:
        report = fuzz(runs, seed, workers, out=out)
        print(msgspec.json.encode(report).decode())
    else:
        report = _with_progress(runs, seed, workers, out)
        _print(report)
    return 1 if report.failed else 0


def _single(case: Case, json: bool) -> int:
    verdict = check(case)
    sentences = tuple(finding.sentence for finding in verdict.findings)
    if json:
        print(msgspec.json.encode(Single(case.klass, bool(sentences), verdict.digest, sentences)).decode())
    else:
        print(summary(case))
        for sentence in sentences:
            print(f"FAILED: {sentence}")
        if not sentences:
            print("passed")
    return 1 if sentences else 0


def summary(case: Case) -> str:
    """A case in a few lines: enough to see what it is about."""
    lines = [
        f"class {case.klass}, {len(case.topology.sites)} sites, mirrors {case.plan.mirrors}, seed {case.seed}"
    ]
    for source in case.graph.sources:
        rows = case.inputs[source.name].num_rows
        lines.append(
            f"  {source.name}: {rows} tuples, enters at {', '.join(case.plan.entries[source.name])}; {source}"
        )
    for operator in case.graph.operators:
        lines.append(f"  {operator.name} on {', '.join(case.plan.replicas[operator.name])}; {operator}")
    for output in case.graph.outputs:
        names = [x.name for x in case.plan.subscriptions if x.output == output.name]
        lines.append(f"  {output} to {', '.join(names)}")
    lines += [f"  fault: {fault}" for fault in case.faults]
    return "\n".join(lines)


def _with_progress(runs: int, seed: int, workers: int | None, out: Path) -> Report:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("runs", total=runs)
        failed = 0

        def watch(index: int, failure: Failure | None) -> None:
            nonlocal failed
            failed += failure is not None
            label = "runs" if not failed else f"runs, [red]{failed} failed[/red], shrinking at the end"
            progress.update(task, advance=1, description=label)

        return fuzz(runs, seed, workers, out=out, watch=watch)


def _print(report: Report) -> None:
    for failure in report.failures:
        print(f"case {failure.index} ({failure.klass or 'class unknown'}) FAILED")
        for sentence in failure.sentences:
            print(f"  {sentence}")
        print(f"  replay: {failure.replay}")
        if failure.case is not None:
            print(f"  shrunk: anabranch fuzz --replay {failure.case}")
    print(f"{report.runs} runs, {report.failed} failed, {report.seconds} s, digest {report.digest}")
