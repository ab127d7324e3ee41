"""What one site has to do under a plan: its entry points, ingress streams, fragments and egress streams.

An edge between two operator replicas on the site is *fused* when the only branch the plan gives it is the
local one: the consumer sits in the same fragment, and nothing is filtered or logged between. An operator that
depends on all of history is never fused: its state is exact only at a punctuation of its one input. Nor does
a fragment take in, filtered, a stream that it also yields: there the last operators are cut loose until none
does.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from anabranch.graph import CountAggregate, Graph, Operator
from anabranch.plan import Plan


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


def historic(operator: Operator) -> bool:
    """Whether it can be rebuilt only from a snapshot or from the beginning."""
    return isinstance(operator, CountAggregate)


def roles(graph: Graph, plan: Plan, site: str) -> Roles:
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
    while (torn := _torn(here, fused)) is not None:
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


def _torn(here: list[Operator], fused: dict[str, list[str]]) -> str | None:
    """An operator to cut loose from a fragment that would both yield a stream and take it in from its
    ingress."""
    for group in _groups(here, fused):
        members = [op for op in here if op.name in group]
        if any(i in group and i not in fused[op.name] for op in members for i in op.inputs):
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
