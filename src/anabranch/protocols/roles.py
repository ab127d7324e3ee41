"""What one site has to do under a plan: its entry points, ingress streams, fragments and egress streams.

An edge between two operator replicas on the site is *fused* when the only branch the plan gives it is the
local one: the consumer sits in the same fragment, and nothing is filtered or logged between. An operator that
depends on all of history is never fused: its state is exact only at a punctuation of its one input. And what
a fragment yields to another one must be made of all its inputs, and be none of them: an engine may wait for
all its inputs, and fragments of several sites would wait for each other in a circle. Where that does not
hold, the last operators are cut loose until it does.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from anabranch.graph import CountAggregate, Graph, Operator, Source
from anabranch.plan import Plan
from anabranch.protocols.cuts import cuts


class FragmentRole(msgspec.Struct, frozen=True):
    """Operators in topological order, streams they take in, streams others want of them; ``consumed``:
    the streams they take in or pass among themselves."""

    operators: tuple[str, ...]
    inputs: tuple[str, ...]
    exports: tuple[str, ...]
    consumed: tuple[str, ...]


class Roles(msgspec.Struct, frozen=True):
    entries: dict[str, tuple[str, ...]]
    """Sources that enter here, with the other entry points of each."""
    ingresses: dict[str, tuple[str, ...]]
    """Streams taken in here, with the sites their branches come from."""
    fragments: tuple[FragmentRole, ...]
    consumers: dict[str, tuple[str, ...]]
    """Streams served here, with the targets of their branches."""


def historic(node: Source | Operator) -> bool:
    """Whether it can be rebuilt only from a snapshot or from the beginning."""
    return isinstance(node, CountAggregate)


def roles(graph: Graph, plan: Plan, site: str, outside: bool = False) -> Roles:
    """``outside``: engines are Spark's, and fragments no larger than one streaming query runs exactly."""
    here = [op for op in graph.operators if site in plan.replicas.get(op.name, ())]
    arriving: dict[str, list[str]] = defaultdict(list)
    leaving: dict[str, list[str]] = defaultdict(list)
    for branch in plan.branches:
        if branch.target == site:
            arriving[branch.stream].append(branch.source)
        if branch.source == site:
            leaving[branch.stream].append(branch.target)
    local = {op.name: op for op in here}
    fused = {
        op.name: [
            i
            for i in op.inputs
            if i in local and arriving[i] == [site] and not historic(op) and not historic(local[i])
        ]
        for op in here
    }
    above = _above(graph)
    applications = {subscription.name for subscription in plan.subscriptions}
    sent = {s for s, targets in leaving.items() if not applications.union([site]).issuperset(targets)}
    if outside:
        _cut(graph, here, fused)
    while (torn := _torn(here, fused, above, sent)) is not None:
        fused[torn] = []
    taken = {i for op in here for i in op.inputs if i not in fused[op.name]}
    consumers = {
        stream: tuple(t for t in targets if t != site or stream in taken)
        for stream, targets in sorted(leaving.items())
    }
    return Roles(
        {
            s: tuple(e for e in sites if e != site)
            for s, sites in sorted(plan.entries.items())
            if site in sites
        },
        {stream: tuple(arriving[stream]) for stream in sorted(taken)},
        tuple(_fragment(group, local, fused, consumers) for group in _groups(here, fused)),
        consumers,
    )


def _cut(graph: Graph, here: list[Operator], fused: dict[str, list[str]]) -> None:
    """Cuts fragments into what one streaming query runs exactly."""
    for group in _groups(here, fused):
        for part in cuts(graph, group):
            for name in part:
                fused[name] = [i for i in fused[name] if i in part]


def _above(graph: Graph) -> dict[str, set[str]]:
    """For each stream, itself and all that it is made of."""
    above = {source.name: {source.name} for source in graph.sources}
    for op in graph.operators:
        above[op.name] = {op.name}.union(*(above[i] for i in op.inputs))
    return above


def _torn(
    here: list[Operator], fused: dict[str, list[str]], above: dict[str, set[str]], sent: set[str]
) -> str | None:
    """An operator to cut loose from a fragment that yields a stream (to the sites it is ``sent`` to, or to
    its own) which is not made of all that the fragment takes in."""
    taken_here = {i for op in here for i in op.inputs if i not in fused[op.name]}
    for group in _groups(here, fused):
        members = [op for op in here if op.name in group]
        taken = [i for op in members for i in op.inputs if i not in fused[op.name]]
        yielded = [op.name for op in members if op.name in sent or op.name in taken_here]
        if any(i == e or i not in above[e] for e in yielded for i in taken):
            return next(op.name for op in reversed(members) if fused[op.name])
    return None


def _groups(here: list[Operator], fused: dict[str, list[str]]) -> list[list[str]]:
    group: dict[str, list[str]] = {}
    for op in here:
        merged = [op.name]
        for stream in fused[op.name]:
            if group[stream] is not merged:
                merged = [*group[stream], *(name for name in merged if name not in group[stream])]
                for name in merged:
                    group[name] = merged
        for name in merged:
            group[name] = merged
    found: list[list[str]] = []
    for op in here:
        if not any(group[op.name] is known for known in found):
            found.append(group[op.name])
    return found


def _fragment(
    group: list[str],
    local: dict[str, Operator],
    fused: dict[str, list[str]],
    consumers: dict[str, tuple[str, ...]],
) -> FragmentRole:
    operators = tuple(name for name in local if name in group)
    inputs = {i: None for name in operators for i in local[name].inputs if i not in fused[name]}
    consumed = dict.fromkeys(i for name in operators for i in local[name].inputs)
    exports = tuple(name for name in operators if consumers.get(name))
    return FragmentRole(operators, tuple(inputs), exports, tuple(consumed))


def spans(graph: Graph, role: FragmentRole) -> dict[tuple[str, str], int]:
    """For each stream that the fragment consumes, from outside or within, and each export that depends on it:
    the longest sum of windows on a way between them."""
    inputs = {name: graph.node(name).inputs for name in role.operators}
    result: dict[tuple[str, str], int] = {}
    for stream in role.consumed:
        reach = {stream: 0}
        for name in role.operators:
            ways = [reach[i] for i in inputs[name] if i in reach]
            if ways:
                reach[name] = max(ways) + graph.span(name)
        result |= {
            (stream, export): reach[export] for export in role.exports if export in reach and export != stream
        }
    return result
