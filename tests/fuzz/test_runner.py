"""The runner: the same digest whoever runs the cases, and failures that can be run again."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from anabranch.fuzz import runner
from anabranch.fuzz.case import Case, load, save
from anabranch.fuzz.check import Verdict, check
from anabranch.fuzz.command import command, summary
from anabranch.fuzz.draw import draw
from anabranch.fuzz.judge import Finding
from anabranch.fuzz.pool import Lost
from anabranch.fuzz.runner import Job, fuzz, run_job
from anabranch.graph import Join
from anabranch.sim.faults import Crash


def inline(
    work: Callable[[Job], object], jobs: Sequence[Job], workers: int, limit: float
) -> Iterator[object]:
    """Stands for the pool: in this process, so that what a test patches is patched there as well. Backwards,
    as results may come in any order; and job 0 dies."""
    for job in reversed(jobs):
        yield job, Lost("the process died (exit status 9)") if job.index == 0 else work(job)


def joins_fail(case: Case) -> Verdict:
    found = any(isinstance(operator, Join) for operator in case.graph.operators)
    return Verdict(f"digest {case.seed}", (Finding("planted", "there is a join"),) if found else ())


def test_the_digest_is_the_same_in_fresh_processes_whoever_runs_what() -> None:
    script = (
        "import sys; from anabranch.fuzz.command import command;"
        "sys.exit(command(8, 3, json=True, workers=int(sys.argv[1])))"
    )
    lines = [
        subprocess.run(
            [sys.executable, "-c", script, workers],
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()[-1]
        for workers, salt in (("1", "0"), ("2", "42"))
    ]
    reports = [json.loads(line) for line in lines]
    for report in reports:
        assert list(report) == ["runs", "failed", "digest", "seconds", "failures"]
        assert (report["runs"], report["failed"], report["failures"]) == (8, 0, [])
    assert reports[0]["digest"] == reports[1]["digest"]
    assert check(draw(3, 0)).digest != check(draw(4, 0)).digest


def test_failures_are_shrunk_and_can_be_run_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runner, "in_processes", inline)
    monkeypatch.setattr(runner, "check", joins_fail)
    monkeypatch.setattr("anabranch.fuzz.check.check", joins_fail)
    seen: list[int] = []
    report = fuzz(12, 1, 1, out=tmp_path, watch=lambda index, failure: seen.append(index))
    assert seen == list(range(11, -1, -1))
    failed = [i for i in range(1, 12) if joins_fail(draw(1, i)).findings]
    assert [failure.index for failure in report.failures] == [0, *failed]
    died, first, *_ = report.failures
    assert (died.klass, died.sentences, died.case) == (None, ("the process died (exit status 9)",), None)
    assert first.sentences == ("there is a join",)
    assert first.replay == f"anabranch fuzz --seed 1 --case {failed[0]}"
    shrunk = load(Path(first.case or ""))
    assert [type(operator) for operator in shrunk.graph.operators] == [Join]
    assert sum(failure.case is not None for failure in report.failures) == min(len(failed), runner.SHRUNK)


def test_what_raises_is_a_failure_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **named: object) -> None:
        raise RuntimeError("the river is dry")

    monkeypatch.setattr("anabranch.fuzz.check.simulate", broken)
    (finding,) = run_job(Job(1, 0)).verdict.findings
    assert finding.kind == "RuntimeError in broken"
    assert "the river is dry" in finding.sentence
    assert "test_runner.py" in finding.sentence
    monkeypatch.setattr(runner, "draw", broken)
    outcome = run_job(Job(1, 0))
    assert (outcome.klass, outcome.verdict.kinds) == (None, ("RuntimeError in broken",))


def test_one_case_is_drawn_and_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(seed=1, case=4, json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "klass": draw(1, 4).klass,
        "failed": False,
        "digest": check(draw(1, 4)).digest,
        "sentences": [],
    }
    assert command(seed=1, case=4) == 0
    assert capsys.readouterr().out.endswith("passed\n")


def test_a_failing_file_is_replayed_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = next(
        c for c in (draw(1, i) for i in range(99)) if c.klass == "live" and c.inputs["source1"].num_rows
    )
    entry = case.plan.subscriptions[0].site
    sites = tuple(Crash(site, -100.0) for site in case.topology.names)
    save(msgspec.structs.replace(case, faults=sites), tmp_path / "all-dead.json")
    assert command(replay=tmp_path / "all-dead.json") == 1
    out = capsys.readouterr().out
    assert "FAILED: streams of applications stand still" in out
    assert f"fault: Crash(site='{entry}'" in out
    assert summary(case).startswith("class live")
    assert command(replay=tmp_path / "none.json") == 2
    assert "cannot be read" in capsys.readouterr().err
