"""What the flow model does not cover: wherever times depend on more than delays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from anabranch.graph import Graph
from anabranch.plan import Plan
from anabranch.protocols.settings import Settings
from anabranch.sim.flow.entrance import Entrance, FlowError, most_within
from anabranch.sim.flow.passage import Passage
from anabranch.topology import Topology


def check_covered(graph: Graph, topology: Topology, plan: Plan) -> None:
    """Raises FlowError if timestamps come from clocks of entry points, or a link in use is of limited
    bandwidth."""
    for source in graph.sources:
        if source.timestamps == "entry":
            raise FlowError(
                f"source {source.name!r}: its entry points give the timestamps, which the flow model does "
                "not cover; run simulate instead, or let the source give them"
            )
    places = {s.name: s.site for s in plan.subscriptions}
    used = {(b.source, places.get(b.target, b.target)): f"the branch of {b.stream!r}" for b in plan.branches}
    for name, sites in plan.entries.items():
        used |= {(a, b): f"the mirroring of source {name!r}" for a in sites for b in sites}
    for link in topology.links:
        user = used.get((link.source, link.target))
        if link.bandwidth and user is not None:
            raise FlowError(
                f"the link from {link.source!r} to {link.target!r}, which {user} takes, has a limited "
                "bandwidth, which the flow model does not cover; run simulate instead, or set it to 0, which "
                "is no limit"
            )


def check_reminders(graph: Graph, topology: Topology, plan: Plan, settings: Settings) -> None:
    """Raises FlowError if an entry point may be reminded by another of what is still on its way to it, and
    get it from there sooner."""
    for source in graph.sources:
        origin, *peers = plan.entries[source.name]
        for peer in peers if len(peers) > 1 and source.identity == "sequence" else ():
            longest = max(topology.link(origin, peer).delay)
            if longest >= settings.mirror_retry:
                raise FlowError(
                    f"source {source.name!r}: from {origin!r} to {peer!r} it takes up to {longest / 1e6:g} "
                    f"s, but entry points remind each other after {settings.mirror_retry / 1e6:g} s, which "
                    "the flow model does not cover; raise mirror_retry, or run simulate instead"
                )


def check_pressure(
    plan: Plan, topology: Topology, settings: Settings, entrances: Mapping[str, Entrance], passage: Passage
) -> None:
    """Raises FlowError if a consumer might exert back-pressure: if more records than ``branch_window`` might
    leave on a branch before the consumer's report of the first is back. Each record has a new tuple or a new
    promise."""
    places = {s.name: s.site for s in plan.subscriptions}
    longest = max((max(link.delay) for link in topology.links), default=0)
    for branch in plan.branches:
        left = np.sort(passage.yielded(branch.stream, branch.source))
        place = places.get(branch.target, branch.target)
        delay = 0 if place == branch.source else max(topology.link(branch.source, place).delay)
        span = settings.tick + 2 * delay
        # On its way here a promise may have been delayed more than one behind it.
        held_up = span + longest * (len(passage.graph.operators) + 2)
        promises = sum(
            entrances[name].most_promises(held_up) for name in _sources(passage.graph, branch.stream)
        )
        records = most_within(left, span) + promises
        if records > settings.branch_window:
            raise FlowError(
                f"the branch of {branch.stream!r} from {branch.source!r} to {branch.target!r} may have "
                f"{records} records on the way, but branch_window is {settings.branch_window}: beyond it "
                "consumers exert back-pressure, which the flow model does not cover; raise it, or run "
                "simulate instead"
            )


def _sources(graph: Graph, stream: str) -> list[str]:
    """The sources that a stream depends on."""
    above = {stream}
    for operator in reversed(graph.operators):
        if operator.name in above:
            above.update(operator.inputs)
    return [source.name for source in graph.sources if source.name in above]
