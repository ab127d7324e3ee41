"""Running one case and judging it. What raises on the way is a finding too."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import msgspec

from anabranch.fuzz.case import Case
from anabranch.fuzz.judge import Finding, judge
from anabranch.protocols.settings import Settings
from anabranch.sim.run import Run, simulate


class Verdict(msgspec.Struct, frozen=True):
    """``digest``: of every message sent in the run, empty if it did not come to an end."""

    digest: str
    findings: tuple[Finding, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(finding.kind for finding in self.findings))


def simulated(case: Case) -> Run:
    settings = msgspec.structs.replace(Settings(), **case.settings)
    return simulate(
        case.graph,
        case.inputs,
        case.topology,
        case.plan,
        case.faults,
        seed=case.seed,
        settings=settings,
        outside=case.outside,
    )


def check(case: Case) -> Verdict:
    digest = ""
    try:
        run = simulated(case)
        digest = run.digest
        return Verdict(digest, tuple(judge(case, run)))
    except Exception as error:  # whatever goes wrong in a run is what fuzzing is looking for
        return Verdict(digest, (raised(error),))


def fails_like(verdict: Verdict) -> Callable[[Case], bool]:
    """Whether a case fails in one of the ways in which another did."""
    return lambda case: any(kind in verdict.kinds for kind in check(case).kinds)


def raised(error: Exception) -> Finding:
    """An exception that was caught, as a finding."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    kind = type(error).__name__
    place = f"{frame.filename}, line {frame.lineno}, in {frame.name}"
    return Finding(f"{kind} in {frame.name}", f"the run raised {kind} in {place}: {error}")
