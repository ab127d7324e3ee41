"""Drawing plans, and in each a lifeline: one replica of every stream, with the branches between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from anabranch.fuzz.dice import Dice
from anabranch.graph import Graph
from anabranch.plan import Branch, Plan, Subscription, consumers, full_mesh


def draw_plan(dice: Dice, graph: Graph, sites: Sequence[str]) -> tuple[Plan, dict[str, str]]:
    """A plan and its lifeline: the site of each source and operator that is on it."""
    entries, mirrors = _draw_entries(dice, graph, sites)
    k = dice.weighted(((1, 20), (2, 40), (3, 25), (4, 15)))
    replicas: dict[str, tuple[str, ...]] = {}
    for operator in graph.operators:
        near = [site for name in operator.inputs for site in (entries.get(name) or replicas[name])]
        count = min(len(sites), k if dice.chance(0.8) else dice.between(1, 4))
        replicas[operator.name] = tuple(_sites(dice, sites, near, count))
    lifeline: dict[str, str] = {}
    for source in graph.sources:
        points = entries[source.name]
        whole = source.identity == "content" or mirrors >= len(points) - 1
        lifeline[source.name] = dice.pick(points) if whole and dice.chance(0.5) else points[0]
    for operator in graph.operators:
        used = [site for site in replicas[operator.name] if site in lifeline.values()]
        lifeline[operator.name] = dice.pick(used if used and dice.chance(0.7) else replicas[operator.name])
    subscriptions = _draw_subscriptions(dice, graph, sites, lifeline)
    plan = full_mesh(graph, entries, replicas, subscriptions, coordinator=dice.pick(sites), mirrors=mirrors)
    return leave_out(dice, plan, graph, lifeline), lifeline


def lifeline_branches(plan: Plan, graph: Graph, lifeline: Mapping[str, str]) -> list[Branch]:
    """The branches that the lifeline consists of."""
    streams = {output.name: output.stream for output in graph.outputs}
    branches = [
        Branch(name, lifeline[name], lifeline[operator.name])
        for operator in graph.operators
        for name in operator.inputs
    ]
    for subscription in plan.subscriptions:
        stream = streams[subscription.output]
        branches.append(Branch(stream, lifeline[stream], subscription.name))
    return list(dict.fromkeys(branches))


def leave_out(dice: Dice, plan: Plan, graph: Graph, lifeline: Mapping[str, str]) -> Plan:
    """The plan, often with fewer branches: without some at random, all but one of each input, or those that a
    branch within the site makes up for. The lifeline stays, and a branch of every input of every consumer."""
    style = dice.weighted((("all", 50), ("some", 20), ("one", 15), ("local", 15)))
    if style == "all":
        return plan
    kept = lifeline_branches(plan, graph, lifeline)
    if style == "some":
        kept += dice.some(plan.branches, 0.6)
    elif style == "local":
        local = [(branch.stream, branch.target) for branch in plan.branches if branch.source == branch.target]
        kept += [x for x in plan.branches if x.source == x.target or (x.stream, x.target) not in local]
    fed = {(branch.stream, branch.target) for branch in kept}
    for branch in dice.sample(plan.branches, len(plan.branches)):
        if (branch.stream, branch.target) not in fed:
            kept.append(branch)
            fed.add((branch.stream, branch.target))
    return msgspec.structs.replace(plan, branches=tuple(branch for branch in plan.branches if branch in kept))


def grown(dice: Dice, plan: Plan, graph: Graph, sites: Sequence[str]) -> Plan:
    """The plan with a replica more of one or two operators, and all branches."""
    replicas = dict(plan.replicas)
    for operator in dice.sample(graph.operators, dice.between(1, 2)):
        free = [site for site in sites if site not in replicas[operator.name]]
        if free and len(replicas[operator.name]) < 4:
            replicas[operator.name] += (dice.pick(free),)
    return full_mesh(graph, plan.entries, replicas, plan.subscriptions, mirrors=plan.mirrors)


def cut_back(dice: Dice, plan: Plan, graph: Graph, lifeline: Mapping[str, str]) -> Plan:
    """The plan with fewer replicas, never without one of the lifeline, and all branches between them."""
    replicas = {
        name: tuple(site for site in sites if site == lifeline[name] or dice.chance(0.5))
        for name, sites in plan.replicas.items()
    }
    return full_mesh(graph, plan.entries, replicas, plan.subscriptions, mirrors=plan.mirrors)


def _draw_entries(dice: Dice, graph: Graph, sites: Sequence[str]) -> tuple[dict[str, tuple[str, ...]], int]:
    most = min(3, len(sites))
    usual = min(most, dice.weighted(((1, 25), (2, 50), (3, 25))))
    entries: dict[str, tuple[str, ...]] = {}
    for source in graph.sources:
        count = usual if dice.chance(0.8) else dice.between(1, most)
        entries[source.name] = tuple(dice.sample(sites, count))
    fewest = min(len(points) for points in entries.values())
    return entries, dice.pick((0, *[min(fewest - 1, mirrors) for mirrors in (1, 1, 2)]))


def _sites(dice: Dice, sites: Sequence[str], near: Sequence[str], count: int) -> list[str]:
    """Different sites, as often as not those where the inputs are."""
    preferred = [site for site in dict.fromkeys(near) if dice.chance(0.5)]
    others = [site for site in sites if site not in preferred]
    return [*preferred, *dice.sample(others, len(others))][:count]


def _draw_subscriptions(
    dice: Dice, graph: Graph, sites: Sequence[str], lifeline: Mapping[str, str]
) -> list[Subscription]:
    subscriptions: list[Subscription] = []
    for output in graph.outputs:
        for number in range(2 if dice.chance(0.25) else 1):
            site = lifeline[output.stream] if dice.chance(0.5) else dice.pick(sites)
            subscriptions.append(Subscription(f"{output.name}@{site}#{number + 1}", output.name, site))
    return subscriptions


def fan_out(plan: Plan, graph: Graph) -> dict[str, int]:
    """How many branches carry each stream."""
    branches = [branch.stream for branch in plan.branches]
    return {stream: branches.count(stream) for stream in consumers(graph)}
