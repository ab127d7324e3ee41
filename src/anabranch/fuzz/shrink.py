"""Shrinking a failing case: greedily, one smaller case after another, while it keeps failing in the same way.

Every step keeps the laws of the case's class, so that what is left fails for the reason it failed at first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import msgspec
import pyarrow as pa

from anabranch.fuzz.case import Case
from anabranch.fuzz.fit import fitted, removable_operators, without_operator, without_output
from anabranch.fuzz.laws import lawful, plans, sites_of
from anabranch.plan import Plan, PlanError, check_plan
from anabranch.sim.faults import Crash, Fault, Replan
from anabranch.topology import Link, Topology, constant

Fails = Callable[[Case], bool]


def shrink(case: Case, fails: Fails, runs: int = 300) -> Case:
    """The smallest case found in at most ``runs`` calls of ``fails``, which tells whether a case fails as the
    first did."""
    tries = _Tries(fails, runs)
    progress = True
    while progress:
        progress = False
        for step in STEPS:
            while (smaller := tries.first(step(case))) is not None:
                case, progress = smaller, True
    return case


class _Tries:
    """A bounded number of runs."""

    def __init__(self, fails: Fails, runs: int) -> None:
        self._fails = fails
        self._left = runs

    def first(self, candidates: Iterator[Case]) -> Case | None:
        """The first candidate that is sound and still fails."""
        for candidate in candidates:
            if not _sound(candidate):
                continue
            if self._left == 0:
                return None
            self._left -= 1
            if self._fails(candidate):
                return candidate
        return None


def _sound(case: Case) -> bool:
    try:
        for plan in plans(case):
            check_plan(plan, case.graph, case.topology)
    except PlanError:
        return False
    return lawful(case)


def _fewer_faults(case: Case) -> Iterator[Case]:
    for kept in _shorter(len(case.faults)):
        yield msgspec.structs.replace(case, faults=tuple(case.faults[i] for i in kept))


def _fewer_outputs(case: Case) -> Iterator[Case]:
    if len(case.graph.outputs) > 1:
        for output in case.graph.outputs:
            yield without_output(case, output.name)


def _fewer_operators(case: Case) -> Iterator[Case]:
    for name in removable_operators(case.graph):
        yield from without_operator(case, name)


def _fewer_applications(case: Case) -> Iterator[Case]:
    used = [application.output for application in case.plan.subscriptions]
    for output in case.graph.outputs:
        if output.name not in used:
            yield without_output(case, output.name)
    if len(case.plan.subscriptions) > 1:
        for gone in case.plan.subscriptions:
            yield _replanned(case, partial(_without_application, name=gone.name))


def _fewer_rows(case: Case) -> Iterator[Case]:
    for name, table in case.inputs.items():
        for kept in _shorter(table.num_rows):
            fewer = table.take(pa.array(kept, pa.int64()))
            yield msgspec.structs.replace(case, inputs={**case.inputs, name: fewer})


def _fewer_replicas(case: Case) -> Iterator[Case]:
    for name, sites in case.plan.replicas.items():
        for gone in sites:
            if gone != case.lifeline[name]:
                yield _replanned(case, partial(_without_replica, name=name, gone=gone))


def _fewer_entries(case: Case) -> Iterator[Case]:
    for name, sites in case.plan.entries.items():
        for gone in sites:
            if gone != case.lifeline[name]:
                yield _replanned(case, partial(_without_entry, name=name, gone=gone))
    if case.plan.mirrors > 0:
        yield _replanned(case, lambda plan: msgspec.structs.replace(plan, mirrors=plan.mirrors - 1))


def _fewer_branches(case: Case) -> Iterator[Case]:
    for gone in case.plan.branches:
        branches = tuple(branch for branch in case.plan.branches if branch != gone)
        yield msgspec.structs.replace(case, plan=msgspec.structs.replace(case.plan, branches=branches))


def _fewer_sites(case: Case) -> Iterator[Case]:
    used = [site for fault in case.faults for site in sites_of(fault)]
    for plan in plans(case):
        used += [plan.coordinator, *(x.site for x in plan.subscriptions)]
        used += [
            site for places in (plan.entries, plan.replicas) for sites in places.values() for site in sites
        ]
    kept = [name for name in case.topology.names if name in used]
    if kept and len(kept) < len(case.topology.names):
        yield msgspec.structs.replace(case, topology=case.topology.subset(kept))
    if case.plan.coordinator != case.lifeline[case.graph.sources[0].name]:
        chief = case.lifeline[case.graph.sources[0].name]
        yield msgspec.structs.replace(case, plan=msgspec.structs.replace(case.plan, coordinator=chief))


def _simpler_links(case: Case) -> Iterator[Case]:
    def simpler(change: Callable[[Link], Link]) -> Case:
        links = tuple(change(link) for link in case.topology.links)
        return msgspec.structs.replace(case, topology=Topology(case.topology.sites, links))

    candidates = [
        simpler(lambda link: constant(link.source, link.target, 10_000)),
        simpler(lambda link: constant(link.source, link.target, link.delay[0])),
    ]
    yield from (candidate for candidate in candidates if candidate.topology != case.topology)


def _simpler_settings(case: Case) -> Iterator[Case]:
    for name in case.settings:
        yield msgspec.structs.replace(
            case, settings={n: value for n, value in case.settings.items() if n != name}
        )


def _simpler_faults(case: Case) -> Iterator[Case]:
    for number, fault in enumerate(case.faults):
        for simpler in _simpler(fault):
            if simpler != fault:
                faults = (*case.faults[:number], simpler, *case.faults[number + 1 :])
                yield msgspec.structs.replace(case, faults=faults)


def _simpler(fault: Fault) -> Iterator[Fault]:
    if isinstance(fault, Crash) and fault.lose_tail > 1:
        yield msgspec.structs.replace(fault, lose_tail=fault.lose_tail // 2)
    if isinstance(fault, Crash) and (fault.lose_tail or not fault.keep_log):
        yield msgspec.structs.replace(fault, lose_tail=0, keep_log=True)
    rounded = {"at": float(round(fault.at))}
    until = getattr(fault, "until", None)
    if until is not None:
        rounded["until"] = max(float(round(until)), rounded["at"] + 1.0)
    yield msgspec.structs.replace(fault, **rounded)


STEPS: tuple[Callable[[Case], Iterator[Case]], ...] = (
    _fewer_faults,
    _fewer_outputs,
    _fewer_operators,
    _fewer_applications,
    _fewer_rows,
    _fewer_replicas,
    _fewer_entries,
    _fewer_branches,
    _fewer_sites,
    _simpler_links,
    _simpler_settings,
    _simpler_faults,
)


def _shorter(length: int) -> Iterator[list[int]]:
    """What is left of so many items: none, then all but a half, all but a quarter ... at last all but one."""
    size = length
    while size > 0:
        for first in range(0, length, size):
            yield [i for i in range(length) if not first <= i < first + size]
        size //= 2


def _replanned(case: Case, change: Callable[[Plan], Plan]) -> Case:
    """The case with every plan changed, and the branches that still have two ends."""
    faults = tuple(
        msgspec.structs.replace(fault, plan=change(fault.plan)) if isinstance(fault, Replan) else fault
        for fault in case.faults
    )
    return fitted(msgspec.structs.replace(case, plan=change(case.plan), faults=faults), case.graph)


def _without_application(plan: Plan, name: str) -> Plan:
    kept = tuple(application for application in plan.subscriptions if application.name != name)
    return msgspec.structs.replace(plan, subscriptions=kept)


def _without_replica(plan: Plan, name: str, gone: str) -> Plan:
    kept = tuple(site for site in plan.replicas[name] if site != gone)
    return msgspec.structs.replace(plan, replicas={**plan.replicas, name: kept})


def _without_entry(plan: Plan, name: str, gone: str) -> Plan:
    entries = {**plan.entries, name: tuple(site for site in plan.entries[name] if site != gone)}
    fewest = min(len(sites) for sites in entries.values())
    return msgspec.structs.replace(plan, entries=entries, mirrors=min(plan.mirrors, max(1, fewest - 1)))
