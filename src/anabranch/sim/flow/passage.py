"""The algebra: minimum over branches, maximum over inputs, plus the delays of links.

A replica takes a tuple when its first copy arrives: the minimum over the branches. Filter, Map, Union and
Custom yield at once what they make of it; Join yields a pair when the later of its two tuples is there: a
maximum. What waits for punctuation, a window or an application that asked for order, appears when the
punctuation passes it: the minimum over the branches of each stream, the maximum over the inputs of each
operator, and at a source the time of the promise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from anabranch.graph import Aggregate, CountAggregate, Custom, Graph, Join, Operator, TopK
from anabranch.plan import Branch, Plan, Subscription
from anabranch.sim.flow.entrance import Entrance, Network
from anabranch.sim.flow.lineage import Lineage, Rows
from anabranch.streams.batch import Ints


class Passage:
    """The times of all tuples of ``lineages`` under a plan, nothing failing."""

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        network: Network,
        entrances: Mapping[str, Entrance],
        lineages: Mapping[str, Lineage],
    ) -> None:
        self.graph = graph
        self.carried: dict[Branch, tuple[int, int]] = {}
        """Of each branch: how many fresh tuples it carries, and their delays, in microseconds, added up."""
        self._network = network
        self._entrances = entrances
        self._lineages = lineages
        self._places = {s.name: s.site for s in plan.subscriptions}
        self._feeders: dict[tuple[str, str], list[Branch]] = defaultdict(list)
        for branch in plan.branches:
            self._feeders[branch.stream, branch.target].append(branch)
        self._yielded: dict[tuple[str, str], Ints] = {}
        self._taken: dict[tuple[str, str], Ints] = {}
        for name, entrance in entrances.items():
            for site in entrance.sites:
                shown = entrance.shown(site, entrance.arrivals)
                self._yielded[name, site] = _rows(shown, lineages[name].made_of[0])
        for operator in graph.operators:
            for site in plan.replicas[operator.name]:
                self._yielded[operator.name, site] = self._computed(operator, site)

    def delivered(self, subscription: Subscription) -> Ints:
        """When each tuple of the output's stream reaches the application."""
        output = next(o for o in self.graph.outputs if o.name == subscription.output)
        first = self.taken(output.stream, subscription.name)
        if output.order != "timestamp":
            return first
        return self._passed(output.stream, subscription.name, self._lineages[output.stream].ts)

    def yielded(self, stream: str, site: str) -> Ints:
        """When each tuple of ``stream`` is at an entry point or a replica that yields it."""
        return self._yielded[stream, site]

    def taken(self, stream: str, target: str) -> Ints:
        """When the first copy of each tuple of ``stream`` is at a site that consumes it, or at an
        application."""
        known = self._taken.get((stream, target))
        if known is None:
            fresh = self._lineages[stream].fresh
            for branch in self._feeders[stream, target]:
                left = self.yielded(stream, branch.source)
                delay = self._delays(branch, left)
                counted = _rows(delay, fresh)
                self.carried[branch] = len(counted), int(counted.sum())
                known = left + delay if known is None else np.minimum(known, left + delay)
            assert known is not None, "check_plan sees to it that every consumer is fed"
            self._taken[stream, target] = known
        return known

    def _computed(self, operator: Operator, site: str) -> Ints:
        lineage = self._lineages[operator.name]
        if waits_for_punctuation(operator):
            return self._passed(operator.inputs[0], site, lineage.ts)
        parts = [
            _rows(self.taken(stream, site), rows)
            for stream, rows in zip(operator.inputs, lineage.made_of, strict=True)
        ]
        if isinstance(operator, Join):
            return np.maximum(*parts)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _delays(self, branch: Branch, left: Ints) -> Ints:
        return self._network.delays_at(branch.source, self._places.get(branch.target, branch.target), left)

    def _passed(self, stream: str, target: str, timestamps: Ints) -> Ints:
        """When the punctuation of ``stream`` at ``target`` reaches each of ``timestamps``."""
        distinct, back = np.unique(timestamps, return_inverse=True)
        return self._frontier(stream, target, distinct, {})[back]

    def _frontier(
        self, stream: str, target: str, timestamps: Ints, known: dict[tuple[str, str], Ints]
    ) -> Ints:
        """The same, for one lot of timestamps; ``known`` is what has been computed for this lot."""
        found = known.get((stream, target))
        if found is None:
            for branch in self._feeders[stream, target]:
                left = self._promised(stream, branch.source, timestamps, known)
                arrival = left + self._delays(branch, left)
                found = arrival if found is None else np.minimum(found, arrival)
            assert found is not None, "check_plan sees to it that every consumer is fed"
            known[stream, target] = found
        return found

    def _promised(self, stream: str, site: str, timestamps: Ints, known: dict[tuple[str, str], Ints]) -> Ints:
        """When ``site`` has promised each of ``timestamps`` of a stream that it yields."""
        if stream in self._entrances:
            entrance = self._entrances[stream]
            return entrance.shown(site, entrance.promised(timestamps))
        operator = self.graph.node(stream)
        times = [self._frontier(name, site, timestamps, known) for name in dict.fromkeys(operator.inputs)]
        return np.asarray(np.maximum.reduce(times), np.int64)


def waits_for_punctuation(operator: Operator) -> bool:
    """Whether its tuples appear when the punctuation passes them, whatever they were made of."""
    if isinstance(operator, Custom):
        return operator.window is not None
    return isinstance(operator, Aggregate | CountAggregate | TopK)


def _rows(times: Ints, rows: Rows) -> Ints:
    return times if rows is None else times[rows]
