"""The flow model lot by lot: streams too long to have in memory at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from anabranch.graph import Graph
from anabranch.plan import Plan
from anabranch.sim.flow.entrance import Entrance
from anabranch.sim.flow.lineage import Lineage
from anabranch.sim.flow.passage import Passage
from anabranch.sim.flow.summary import BranchUse, Distribution, Summary
from anabranch.sim.flow.unrolling import Unrolling


class Lot(msgspec.Struct, frozen=True):
    """A stretch of all streams of a query: every tuple is fresh in one lot, and there with what it is made
    of. No tuple of this lot or a later one arrives before ``begin``. Where tuples wait for punctuation, the
    entrances must also know the arrivals, beyond those of the lot, that may bring the promises."""

    begin: int
    entrances: Mapping[str, Entrance]
    lineages: Mapping[str, Lineage]


def flow_in_lots(graph: Graph, plan: Plan, network: Unrolling, lots: Iterable[Lot]) -> Summary:
    """What :func:`flow` would say of all lots together. Only one is in memory at a time."""
    streams = {output.name: output.stream for output in graph.outputs}
    summary = Summary()
    for lot in lots:
        network.forget(lot.begin)
        passage = Passage(graph, plan, network, lot.entrances, lot.lineages)
        for subscription in plan.subscriptions:
            lineage = lot.lineages[streams[subscription.output]]
            latency = passage.delivered(subscription) - lineage.ts
            fresh = latency if lineage.fresh is None else latency[lineage.fresh]
            summary.latencies.setdefault(subscription.name, Distribution()).add(fresh)
        for branch, (tuples, on_the_way) in passage.carried.items():
            use = summary.branches.setdefault(branch, BranchUse())
            use.tuples += tuples
            use.on_the_way += on_the_way
    return summary
