"""What each class of case may suffer. The drawing and the shrinking both keep to these laws.

Without them a case could fail for a good reason: because what was lost was held by nobody else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from anabranch.fuzz.case import Case, Klass
from anabranch.fuzz.placements import lifeline_branches
from anabranch.graph import CountAggregate
from anabranch.plan import Plan
from anabranch.sim.faults import (
    ClockOffset,
    Crash,
    Cut,
    Fault,
    Redeliver,
    Reopen,
    Replan,
    Slow,
    SlowDisk,
    Stall,
)


def lawful(case: Case) -> bool:
    """Whether the case keeps the laws of its class."""
    return (
        all(_has_lifeline(case, plan) for plan in plans(case))
        and not _overlapping(case.faults)
        and not any(isinstance(x, ClockOffset) and x.site in _stamping(case) for x in case.faults)
        and (case.klass in ("outage", "loss") or not _stamps_apart(case))
        and not _stamps_again(case)
        and _KEPT[case.klass](case)
    )


def plans(case: Case) -> list[Plan]:
    """The plan and all that come after it."""
    return [case.plan, *(fault.plan for fault in case.faults if isinstance(fault, Replan))]


def sites_of(fault: Fault) -> tuple[str, ...]:
    """The site that the fault hits, or the ends of the link."""
    match fault:
        case Crash(site=site) | SlowDisk(site=site) | ClockOffset(site=site) | Replan(site=site):
            return (site,)
        case Cut(a=a, b=b) | Stall(a=a, b=b) | Slow(a=a, b=b) | Reopen(a=a, b=b) | Redeliver(a=a, b=b):
            return (a, b)
        case _:
            return ()


def live_sites(case: Case) -> list[str]:
    """The sites of the lifeline and of the applications."""
    return _distinct([*case.lifeline.values(), *(x.site for x in case.plan.subscriptions)])


def loses_log(fault: Fault) -> bool:
    return isinstance(fault, Crash) and (not fault.keep_log or fault.lose_tail > 0)


def _calm(case: Case) -> bool:
    return not case.faults


def _live(case: Case) -> bool:
    """No crash on the lifeline, no link within it cut, no tuple known only to an entry point that fails."""
    spared = live_sites(case)
    for fault in case.faults:
        if _stops(fault, spared):
            return False
        if isinstance(fault, Cut | Stall) and fault.a in spared and fault.b in spared:
            return False
    sequences = [source.name for source in case.graph.sources if source.identity == "sequence"]
    return not any(_exposed(case, case.plan.entries[name]) for name in sequences)


def _exposed(case: Case, points: Sequence[str]) -> bool:
    """Whether one of the entry points may vanish with tuples that it could not hand to its peers."""
    vanishing = any(
        isinstance(fault, Crash) and fault.site in points and (loses_log(fault) or fault.until is None)
        for fault in case.faults
    )
    return vanishing and any(_parts(fault, points) for fault in case.faults)


def _outage(case: Case) -> bool:
    """Everything ends, and at most one log is lost, one whose contents others hold for certain."""
    if any(isinstance(fault, Crash) and fault.until is None for fault in case.faults):
        return False
    losses = [fault for fault in case.faults if isinstance(fault, Crash) and loses_log(fault)]
    return len(losses) < 2 and all(_replaceable(case, loss) for loss in losses)


def _stamps_apart(case: Case) -> bool:
    """Whether entry points that give the timestamps of one source together are hindered: they wait for each
    other then, while a live path remains."""
    for source in case.graph.sources:
        points = case.plan.entries[source.name]
        together = source.timestamps == "entry" and len(points) > 1
        if together and any(_parts(x, points) or _stops(x, points) for x in case.faults):
            return True
    return False


def _stamps_again(case: Case) -> bool:
    """Whether tuples that a clock has stamped and shown may be lost from all entry points before their
    producer has been told: it brings them again, and nobody knows their stamps."""
    for source in case.graph.sources:
        points = case.plan.entries[source.name]
        crashes = [x for x in case.faults if isinstance(x, Crash) and x.site in points]
        alone = len(points) < 2 or len({crash.site for crash in crashes}) > 1
        if source.timestamps == "entry" and alone and any(loses_log(crash) for crash in crashes):
            return True
    return False


def _stops(fault: Fault, sites: Sequence[str]) -> bool:
    return isinstance(fault, Crash) and fault.site in sites


def _parts(fault: Fault, points: Sequence[str]) -> bool:
    """Whether the fault keeps these entry points from hearing each other in time."""
    if isinstance(fault, SlowDisk):
        return fault.site in points
    return isinstance(fault, Cut | Stall | Slow) and fault.a in points and fault.b in points


def _replaceable(case: Case, loss: Crash) -> bool:
    """Every source with an entry point there has another that mirrors it undisturbed, every operator that
    depends on all of history another replica, and no plan takes replicas away."""
    points: list[str] = []
    for source in case.graph.sources:
        mine = case.plan.entries[source.name]
        if loss.site in mine:
            alone = len(mine) < 2 or (case.plan.mirrors < 1 and source.identity == "sequence")
            if alone or source.timestamps == "entry":
                return False
            if source.identity == "content" and _depends_on(case, source.name, loss.site):
                return False
            points += mine
    for fault in case.faults:
        if isinstance(fault, Replan):
            if _takes_away(case.plan, fault.plan):
                return False
        elif fault is not loss and fault.at <= loss.at and any(site in points for site in sites_of(fault)):
            return False
    counting = [x.name for x in case.graph.operators if isinstance(x, CountAggregate)]
    return all(
        len(sites) > 1 and not _depends_on(case, name, loss.site)
        for name, sites in case.plan.replicas.items()
        if name in counting and loss.site in sites
    )


def _depends_on(case: Case, stream: str, site: str) -> bool:
    """Whether some consumer of the stream has, under some plan, no branch but from this site."""
    for plan in plans(case):
        branches = [branch for branch in plan.branches if branch.stream == stream]
        others = {branch.target for branch in branches if branch.source != site}
        if any(branch.target not in others for branch in branches):
            return True
    return False


def _takes_away(before: Plan, after: Plan) -> bool:
    return any(site not in after.replicas[name] for name, sites in before.replicas.items() for site in sites)


_KEPT: dict[Klass, Callable[[Case], bool]] = {
    "calm": _calm,
    "live": _live,
    "outage": _outage,
    "loss": lambda case: True,
}


def _has_lifeline(case: Case, plan: Plan) -> bool:
    needed = lifeline_branches(plan, case.graph, case.lifeline)
    whole = all(_is_whole(case, plan, source.name) for source in case.graph.sources)
    return whole and all(branch in plan.branches for branch in needed)


def _is_whole(case: Case, plan: Plan, source: str) -> bool:
    """Whether the lifeline's entry point is told every tuple of the source."""
    points = plan.entries[source]
    own = case.lifeline[source]
    content = any(x.name == source and x.identity == "content" for x in case.graph.sources)
    return own in points and (own == points[0] or content or plan.mirrors >= len(points) - 1)


def _overlapping(faults: Sequence[Fault]) -> bool:
    """Whether a site crashes while it is down, or just as it comes back."""
    crashes = [fault for fault in faults if isinstance(fault, Crash)]
    return any(
        a is not b and a.site == b.site and a.at <= b.at and (a.until is None or b.at <= a.until)
        for a in crashes
        for b in crashes
    )


def _stamping(case: Case) -> list[str]:
    """Entry points whose clock is part of the result."""
    return [s for x in case.graph.sources if x.timestamps == "entry" for s in case.plan.entries[x.name]]


def _distinct(sites: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(sites))
