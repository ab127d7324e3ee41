"""Many cases on all cores, and what came of them.

Everything but the seconds depends on (runs, seed) alone: results are taken in order of their index,
whoever ran them.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from anabranch.fuzz.case import Case, Klass, save
from anabranch.fuzz.check import Verdict, check, fails_like, raised
from anabranch.fuzz.draw import draw
from anabranch.fuzz.pool import Lost, in_processes
from anabranch.fuzz.shrink import shrink

LIMIT = 60.0
"""Seconds that one run may take: two hundred times what it usually takes."""
SHRINK_LIMIT = 600.0
SHRUNK = 5
"""Failures that are shrunk: the first ones."""


class Failure(msgspec.Struct, frozen=True):
    """``klass``: None if the process died before it could tell. ``replay``: the command that runs the case
    again. ``case``: the file that holds it, shrunk where possible."""

    index: int
    klass: Klass | None
    sentences: tuple[str, ...]
    replay: str
    case: str | None = None


class Report(msgspec.Struct, frozen=True):
    """``digest``: of every message sent in all runs."""

    runs: int
    failed: int
    digest: str
    seconds: float
    failures: tuple[Failure, ...]


class Job(msgspec.Struct, frozen=True):
    seed: int
    index: int


class Outcome(msgspec.Struct, frozen=True):
    index: int
    klass: Klass | None
    verdict: Verdict


Watch = Callable[[int, Failure | None], None]
"""Told of every case as it ends: its index, and how it failed if it did."""


def fuzz(
    runs: int,
    seed: int,
    workers: int | None = None,
    *,
    out: Path | None = Path("fuzz-failures"),
    limit: float = LIMIT,
    watch: Watch | None = None,
) -> Report:
    """Runs the cases 0 to ``runs`` - 1 of ``seed``. Failing cases are written to ``out``, if one is given."""
    begun = time.monotonic()
    digests: dict[int, str] = {}
    failures: dict[int, Failure] = {}
    jobs = [Job(seed, index) for index in range(runs)]
    count = min(workers or os.cpu_count() or 1, max(runs, 1))
    for job, result in in_processes(run_job, jobs, count, limit):
        if isinstance(result, Lost):
            failures[job.index] = _failure(job, None, (result.reason,))
        else:
            digests[job.index] = result.verdict.digest
            if result.verdict.findings:
                sentences = tuple(finding.sentence for finding in result.verdict.findings)
                failures[job.index] = _failure(job, result.klass, sentences)
        if watch is not None:
            watch(job.index, failures.get(job.index))
    if out is not None:
        failures = _saved(failures, seed, out, count)
    whole = hashlib.sha256("\n".join(digests.get(index, "") for index in range(runs)).encode())
    seconds = round(time.monotonic() - begun, 3)
    in_order = tuple(failures[index] for index in sorted(failures))
    return Report(runs, len(failures), whole.hexdigest(), seconds, in_order)


def run_job(job: Job) -> Outcome:
    """Draws a case and runs it; in a worker."""
    try:
        case = draw(job.seed, job.index)
    except Exception as error:  # a case that cannot be drawn is a failure with an index, like any other
        return Outcome(job.index, None, Verdict("", (raised(error),)))
    return Outcome(job.index, case.klass, check(case))


def shrink_job(job: Job) -> Case:
    """Draws a failing case again and shrinks it; in a worker."""
    case = draw(job.seed, job.index)
    return shrink(case, fails_like(check(case)))


def _failure(job: Job, klass: Klass | None, sentences: tuple[str, ...]) -> Failure:
    return Failure(job.index, klass, sentences, f"anabranch fuzz --seed {job.seed} --case {job.index}")


def _saved(failures: dict[int, Failure], seed: int, out: Path, workers: int) -> dict[int, Failure]:
    """The failures, the first of them with files that hold their shrunk cases; what killed its process is not
    run again."""
    known = [Job(seed, index) for index in sorted(failures) if failures[index].klass is not None][:SHRUNK]
    saved = dict(failures)
    for job, result in in_processes(shrink_job, known, workers, SHRINK_LIMIT):
        case = draw(job.seed, job.index) if isinstance(result, Lost) else result
        path = out / f"seed{job.seed}-case{job.index}.json"
        save(case, path)
        saved[job.index] = msgspec.structs.replace(failures[job.index], case=str(path))
    return saved
