"""Drawing fault schedules: faults are proposed at random, and kept if the case stays lawful with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from anabranch.fuzz import placements
from anabranch.fuzz.case import Case
from anabranch.fuzz.dice import Dice
from anabranch.fuzz.laws import lawful, live_sites
from anabranch.graph import Aggregate, CountAggregate, Custom, Operator
from anabranch.plan import Plan
from anabranch.sim.faults import (
    Burst,
    ClockOffset,
    Crash,
    Cut,
    EngineCrash,
    Fault,
    Redeliver,
    Reopen,
    Replan,
    Slow,
    SlowDisk,
    Stall,
)

TRIES = 6
"""Proposals for each fault before it is given up: a lifeline through all sites leaves little to break."""


def with_faults(dice: Dice, case: Case, begin: float, span: float) -> Case:
    """The case, whose inputs last ``span`` seconds from ``begin``, with the faults its class asks for."""
    if case.klass == "calm":
        return case
    schedule = _Schedule(dice, case, begin, span)
    if dice.chance(0.25):
        schedule.replan()
    for _ in range(dice.weighted(((1, 15), (2, 20), (3, 20), (4, 18), (5, 12), (7, 10), (9, 5)))):
        schedule.add()
    if case.klass == "outage" and dice.chance(0.5):
        schedule.lose_one_log()
    return schedule.case


def _counts(operator: Operator) -> bool:
    """Whether a tuple that comes twice is two tuples to it."""
    windowed = isinstance(operator, Custom) and operator.window is not None
    return windowed or isinstance(operator, Aggregate | CountAggregate)


class _Schedule:
    def __init__(self, dice: Dice, case: Case, begin: float, span: float) -> None:
        self.dice = dice
        self.case = case
        self.begin = begin
        self.span = span
        self.sites = case.topology.names
        self.pairs = [(a, b) for a in self.sites for b in self.sites if a != b]
        spared = live_sites(case) if case.klass == "live" else []
        self.mortal = [site for site in self.sites if site not in spared]
        self.places = {x.name: x.site for x in case.plan.subscriptions}
        used = dict.fromkeys((x.source, self.places.get(x.target, x.target)) for x in case.plan.branches)
        self.used = [pair for pair in used if pair in self.pairs]
        self.rejoining = self._rejoining()
        self.busy = [site for site in self.mortal if any(site in carriers for carriers in self._placed())]

    def add(self) -> None:
        kinds: list[tuple[Callable[[], Sequence[Fault]], float]] = [
            (self._burst, 5),
            (self._slow_disk, 6),
            (self._clock_offset, 6),
        ]
        if self.case.outside:
            kinds.append((self._engine_crash, 12))
        if self.mortal:
            kinds.append((self._crash, 34))
        if self.rejoining:
            kinds.append((self._crash_behind_a_cut, 24))
        if self.busy and self.case.klass != "outage":
            kinds.append((self._newcomer, 5))
        if self.pairs:
            kinds += [
                (self._cut, 15),
                (self._stall, 10),
                (self._slow, 5),
                (self._reopen, 8),
                (self._redeliver, 8),
            ]
        for _ in range(TRIES):
            if self._keep(*dict.fromkeys(self.dice.weighted(kinds)())):
                return

    def _keep(self, *faults: Fault) -> bool:
        case = msgspec.structs.replace(self.case, faults=(*self.case.faults, *faults))
        if not lawful(case):
            return False
        self.case = case
        return True

    def _episode(self, longest: float = 5.0) -> tuple[float, float]:
        """From some time in the run's life to a later one."""
        at = self.begin + self.dice.seconds(0.0, self.span)
        return at, at + self.dice.seconds(0.05, longest if self.dice.chance(0.6) else 0.8)

    def _link(self) -> tuple[str, str]:
        """A link that some branch uses, mostly."""
        return self.dice.pick(self.used if self.used and self.dice.chance(0.85) else self.pairs)

    def _crash(self) -> Sequence[Fault]:
        dice = self.dice
        site = dice.pick(self.busy if self.busy and dice.chance(0.8) else self.mortal)
        at, until = self._episode()
        if self.case.klass == "outage":
            return [Crash(site, at, until)]
        damage = dice.weighted((("none", 45), ("tail", 25), ("all", 30)))
        tail = dice.between(1, 12) if damage == "tail" else 0
        return [Crash(site, at, None if dice.chance(0.2) else until, damage != "all", tail)]

    def _crash_behind_a_cut(self) -> Sequence[Fault]:
        """A site falls and soon rises again after one of its branches was cut: what that one brings now,
        others brought before the fall."""
        a, site = self.dice.pick(self.rejoining)
        at, until = self._episode(0.5)
        return [Cut(a, site, at - self.dice.seconds(0.2, 2.0), at), Crash(site, at, until)]

    def _newcomer(self) -> Sequence[Fault]:
        """A site comes back empty, and what its peers send is slow: its results are the first to arrive."""
        site = self.dice.pick(self.busy)
        at, until = self._episode(0.8)
        streams = [name for name, carriers in self.case.plan.replicas.items() if site in carriers]
        links = dict.fromkeys(
            (x.source, self.places.get(x.target, x.target))
            for x in self.case.plan.branches
            if x.stream in streams and x.source != site
        )
        slow = [Slow(a, b, at, until + 3.0, 10.0) for a, b in links if a != b]
        return [Crash(site, at, until, keep_log=False), *slow]

    def _rejoining(self) -> list[tuple[str, str]]:
        """Links along branches that have company, into mortal sites whose operators count their tuples; where
        there are any, into sites that are alone with such an operator."""
        plan = self.case.plan
        arriving = [(branch.stream, branch.target) for branch in plan.branches]
        crowds: dict[tuple[str, str], int] = {}
        for operator in self.case.graph.operators:
            sites = plan.replicas[operator.name]
            for branch in plan.branches if _counts(operator) else ():
                company = arriving.count((branch.stream, branch.target)) > 1
                mortal = branch.target in sites and branch.target in self.mortal
                if company and mortal and branch.stream in operator.inputs and branch.source != branch.target:
                    crowds[branch.source, branch.target] = len(sites)
        fewest = min(crowds.values(), default=0)
        return [link for link, crowd in crowds.items() if crowd == fewest]

    def _placed(self) -> list[tuple[str, ...]]:
        return [*self.case.plan.entries.values(), *self.case.plan.replicas.values()]

    def _cut(self) -> Sequence[Fault]:
        a, b = self._link()
        at, until = self._episode()
        both = self.dice.chance(0.4)
        return [Cut(a, b, at, until), Cut(b, a, at, until)] if both else [Cut(a, b, at, until)]

    def _stall(self) -> Sequence[Fault]:
        return [Stall(*self._link(), *self._episode())]

    def _slow(self) -> Sequence[Fault]:
        return [Slow(*self._link(), *self._episode(), self.dice.pick((0.5, 2.0, 5.0, 20.0)))]

    def _slow_disk(self) -> Sequence[Fault]:
        return [SlowDisk(self.dice.pick(self.sites), *self._episode(), self.dice.pick((0.02, 0.1, 0.5)))]

    def _engine_crash(self) -> Sequence[Fault]:
        return [EngineCrash(self.dice.pick(self.sites), self._episode()[0], self.dice.chance(0.6))]

    def _reopen(self) -> Sequence[Fault]:
        return [Reopen(*self._link(), self._episode()[0])]

    def _redeliver(self) -> Sequence[Fault]:
        return [Redeliver(*self._link(), self._episode()[0], self.dice.between(1, 20))]

    def _burst(self) -> Sequence[Fault]:
        return [Burst(self.dice.pick(self.case.graph.sources).name, *self._episode(3.0))]

    def _clock_offset(self) -> Sequence[Fault]:
        by = self.dice.pick((-3.0, -0.25, 0.125, 2.0))
        skew = self.dice.pick((0.0, 0.01, -0.02))
        return [ClockOffset(self.dice.pick(self.sites), by, self._episode()[0], skew)]

    def replan(self) -> None:
        """A sequence of plans, the first of which grows; at times two coordinators make one of an epoch."""
        dice = self.dice
        at = self.begin + dice.seconds(0.0, self.span * 0.7)
        plan = self.case.plan
        for epoch in range(2, 3 + dice.between(0, 2)):
            chiefs = dice.sample(self.sites, 2 if dice.chance(0.25) else 1)
            rivals = [self._next(plan, epoch, chief) for chief in chiefs]
            for rival in rivals:
                self._keep(Replan(dice.pick(self.sites), at + dice.seconds(0.0, 0.5), rival))
            # of one epoch the greater coordinator's plan wins, and the next starts from it
            plan = max(rivals, key=lambda rival: rival.coordinator)
            at += dice.seconds(0.3, self.span / 3)

    def _next(self, plan: Plan, epoch: int, chief: str) -> Plan:
        graph, lifeline = self.case.graph, self.case.lifeline
        if epoch == 2 or self.dice.chance(0.3):
            plan = placements.grown(self.dice, plan, graph, self.sites)
        else:
            plan = placements.cut_back(self.dice, plan, graph, lifeline)
        plan = placements.leave_out(self.dice, plan, graph, lifeline)
        return msgspec.structs.replace(plan, epoch=epoch, coordinator=chief)

    def lose_one_log(self) -> None:
        """One crash becomes one that loses its site's log, or a tail of it; what speaks against that goes."""
        crashes = [fault for fault in self.case.faults if isinstance(fault, Crash)]
        for crash in self.dice.sample(crashes, len(crashes)):
            tail = self.dice.between(1, 12) if self.dice.chance(0.4) else 0
            loss = Crash(crash.site, crash.at, crash.until, tail > 0, tail)
            kept: tuple[Fault, ...] = (loss,)
            for fault in self.case.faults:
                if fault is not crash and lawful(msgspec.structs.replace(self.case, faults=(*kept, fault))):
                    kept = (*kept, fault)
            case = msgspec.structs.replace(self.case, faults=kept)
            if lawful(case):
                self.case = case
                return
