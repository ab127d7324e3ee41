"""Which replica runs where and which branches are live, numbered by epoch."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from anabranch.graph import Graph
from anabranch.topology import Topology


class PlanError(ValueError):
    """A plan that does not fit its query or topology: the sentence says what, where and what to do."""


class Branch(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """The flow of ``stream`` from its replica on site ``source`` to ``target``: a site, or an application's
    name."""

    stream: str
    source: str
    target: str


class Subscription(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An application: its name, the output it subscribes to, and the site it is near."""

    name: str
    output: str
    site: str


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``entries``: the entry points of each source, the first preferred; ``replicas``: the sites of each
    operator."""

    epoch: int
    coordinator: str
    entries: dict[str, tuple[str, ...]]
    replicas: dict[str, tuple[str, ...]]
    subscriptions: tuple[Subscription, ...]
    branches: tuple[Branch, ...]
    mirrors: int = 1

    def carriers(self, stream: str) -> tuple[str, ...]:
        """The sites that yield a stream: its source's entry points, or its operator's replicas."""
        return self.entries.get(stream) or self.replicas.get(stream, ())

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @staticmethod
    def from_json(text: bytes | str) -> Plan:
        try:
            return msgspec.json.decode(text, type=Plan)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise PlanError(f"the plan is not as it should be: {error}") from None

    @staticmethod
    def from_toml(text: str) -> Plan:
        try:
            return msgspec.convert(tomllib.loads(text), Plan)
        except (tomllib.TOMLDecodeError, msgspec.ValidationError, RecursionError) as error:
            raise PlanError(f"the plan is not as it should be: {error}") from None

    @staticmethod
    def load(path: str | Path) -> Plan:
        """The plan of a ``.toml`` or ``.json`` file."""
        path = Path(path)
        try:
            if path.suffix == ".toml":
                return Plan.from_toml(path.read_text("utf-8"))
            return Plan.from_json(path.read_bytes())
        except OSError as error:
            raise PlanError(f"{path}: cannot be read ({error.strerror or error}); check the path") from None
        except ValueError as error:
            raise PlanError(f"{path}: {error}") from None


def consumers(graph: Graph) -> dict[str, tuple[str, ...]]:
    """The operators that consume each stream of a query."""
    found: dict[str, tuple[str, ...]] = {node.name: () for node in (*graph.sources, *graph.operators)}
    for operator in graph.operators:
        for stream in dict.fromkeys(operator.inputs):
            found[stream] += (operator.name,)
    return found


def full_mesh(
    graph: Graph,
    entries: Mapping[str, Sequence[str]],
    replicas: Mapping[str, Sequence[str]],
    subscriptions: Sequence[Subscription],
    *,
    epoch: int = 1,
    coordinator: str = "",
    mirrors: int = 1,
) -> Plan:
    """The plan with every possible branch: from each entry point or replica of a stream to each site that
    runs a consumer of it, that very site included, and to each application."""
    branches = []
    for stream, names in consumers(graph).items():
        carriers = entries.get(stream) or replicas.get(stream, ())
        targets = [site for name in names for site in replicas.get(name, ())]
        targets += [
            s.name for s in subscriptions for o in graph.outputs if o.name == s.output and o.stream == stream
        ]
        branches += [
            Branch(stream, carrier, target) for carrier in carriers for target in dict.fromkeys(targets)
        ]
    return Plan(
        epoch,
        coordinator,
        {source: tuple(sites) for source, sites in entries.items()},
        {operator: tuple(sites) for operator, sites in replicas.items()},
        tuple(subscriptions),
        tuple(branches),
        mirrors,
    )


def copies(
    graph: Graph,
    entries: Mapping[str, Sequence[str]],
    sites: Sequence[str],
    subscriptions: Sequence[Subscription],
    *,
    epoch: int = 1,
    mirrors: int = 1,
) -> Plan:
    """The whole query on each of ``sites``: branches from every entry point to each copy, from every copy to
    each application, and within a copy only its own. One engine then runs a copy at once, with nothing
    filtered or logged between its operators; a copy that lacks an input has no other's results to go on
    with."""
    plan = full_mesh(
        graph, entries, {operator.name: sites for operator in graph.operators}, subscriptions, epoch=epoch
    )
    inner = {operator.name for operator in graph.operators}
    kept = [
        b for b in plan.branches if b.stream not in inner or b.target not in sites or b.source == b.target
    ]
    return msgspec.structs.replace(plan, branches=tuple(kept), mirrors=mirrors)


def spread(
    graph: Graph,
    topology: Topology,
    k: int,
    *,
    entries: Mapping[str, Sequence[str]] | None = None,
    apps: Sequence[Subscription] | None = None,
    seed: int = 0,
) -> Plan:
    """A simple plan: each operator on ``k`` sites drawn among those that run least, and every branch.

    A source without ``entries`` gets two entry points, or one where there is one site; without ``apps`` each
    output has one application, ``OUTPUT@SITE``. The same seed gives the same plan.
    """
    if not 1 <= k <= len(topology.sites):
        raise PlanError(
            f"k is {k} but there are {len(topology.sites)} sites; each replica needs a site of its own"
        )
    rng = np.random.default_rng(seed)
    load = dict.fromkeys(topology.names, 0.0)

    def draw(count: int) -> tuple[str, ...]:
        shuffled = [topology.names[i] for i in rng.permutation(len(topology.names))]
        chosen = tuple(sorted(shuffled, key=lambda name: load[name])[:count])
        for name in chosen:
            load[name] += 1 / topology.site(name).capacity
        return chosen

    given = entries or {}
    points = {
        source.name: tuple(given[source.name]) if source.name in given else draw(min(2, len(topology.sites)))
        for source in graph.sources
    }
    replicas = {operator.name: draw(k) for operator in graph.operators}
    if apps is None:
        sites = [(output.name, topology.names[rng.integers(len(topology.names))]) for output in graph.outputs]
        apps = [Subscription(f"{output}@{site}", output, site) for output, site in sites]
    return full_mesh(graph, points, replicas, apps)


def check_plan(plan: Plan, graph: Graph, topology: Topology) -> None:
    """Raises PlanError unless the plan runs this query on these sites."""
    if plan.epoch < 0:
        raise PlanError(f"epoch is {plan.epoch}; epochs count from 0")
    if plan.coordinator and plan.coordinator not in topology.names:
        raise PlanError(f"coordinator {plan.coordinator!r} is not a site; {_listed('sites', topology.names)}")
    _check_places("entries", "source", plan.entries, [source.name for source in graph.sources], topology)
    _check_places(
        "replicas", "operator", plan.replicas, [operator.name for operator in graph.operators], topology
    )
    _check_mirrors(plan)
    _check_subscriptions(plan, graph, topology)
    _check_branches(plan, graph)
    _check_supply(plan, graph)


def _check_places(
    field: str, kind: str, places: Mapping[str, Sequence[str]], names: Sequence[str], topology: Topology
) -> None:
    for name, sites in places.items():
        where = f"{field} of {name!r}"
        if name not in names:
            raise PlanError(f"{where}: the query has no such {kind}; {_listed(f'{kind}s', names)}")
        for i, site in enumerate(sites):
            if site not in topology.names:
                raise PlanError(f"{where}: there is no site {site!r}; {_listed('sites', topology.names)}")
            if site in sites[:i]:
                raise PlanError(f"{where}: site {site!r} is there twice; remove one")
    for name in names:
        if not places.get(name):
            raise PlanError(f"{kind} {name!r} runs nowhere; name at least one site for it in {field}")


def _check_mirrors(plan: Plan) -> None:
    if plan.mirrors < 0:
        raise PlanError(f"mirrors is {plan.mirrors}; it must be 0 or more")
    for source, sites in plan.entries.items():
        # the default of one mirror holds where there is a peer, so one mirror is never too many
        if plan.mirrors > max(1, len(sites) - 1):
            raise PlanError(
                f"mirrors is {plan.mirrors} but source {source!r} has {len(sites)} entry points, "
                "of which one cannot mirror to itself; lower mirrors or add entry points"
            )


def _check_subscriptions(plan: Plan, graph: Graph, topology: Topology) -> None:
    outputs = [output.name for output in graph.outputs]
    seen: set[str] = set()
    for subscription in plan.subscriptions:
        where = f"application {subscription.name!r}"
        if not subscription.name:
            raise PlanError("an application has no name; give it one, like 'alerts@paris'")
        if subscription.name in topology.names:
            raise PlanError(
                f"{where}: a site has the same name; call the application '{subscription.name}@...'"
            )
        if subscription.name in seen:
            raise PlanError(f"{where} is there twice; give each application a name of its own")
        seen.add(subscription.name)
        if subscription.output not in outputs:
            raise PlanError(
                f"{where}: the query has no output {subscription.output!r}; {_listed('outputs', outputs)}"
            )
        if subscription.site not in topology.names:
            raise PlanError(
                f"{where}: there is no site {subscription.site!r}; {_listed('sites', topology.names)}"
            )


def _check_branches(plan: Plan, graph: Graph) -> None:
    readers = consumers(graph)
    streams = {output.name: output.stream for output in graph.outputs}
    wanted = {subscription.name: streams[subscription.output] for subscription in plan.subscriptions}
    seen: set[Branch] = set()
    for branch in plan.branches:
        where = f"branch of {branch.stream!r} from {branch.source!r} to {branch.target!r}"
        if branch in seen:
            raise PlanError(f"{where} is there twice; remove one")
        seen.add(branch)
        if branch.stream not in readers:
            raise PlanError(f"{where}: the query has no such stream; {_listed('streams', list(readers))}")
        if branch.source not in plan.carriers(branch.stream):
            raise PlanError(
                f"{where}: {branch.source!r} does not yield that stream; "
                f"{_listed('sites that do', plan.carriers(branch.stream))}"
            )
        if branch.target in wanted:
            if wanted[branch.target] != branch.stream:
                raise PlanError(
                    f"{where}: that application subscribes to {wanted[branch.target]!r}, not to this stream"
                )
        elif not any(branch.target in plan.replicas[name] for name in readers[branch.stream]):
            raise PlanError(
                f"{where}: the target is neither an application of the plan nor a site that runs a consumer "
                "of the stream; remove the branch or place a consumer there"
            )


def _check_supply(plan: Plan, graph: Graph) -> None:
    fed = {(branch.stream, branch.target) for branch in plan.branches}
    for operator in graph.operators:
        for site in plan.replicas[operator.name]:
            for stream in operator.inputs:
                if (stream, site) not in fed:
                    raise PlanError(
                        f"operator {operator.name!r} on site {site!r}: no branch brings its input "
                        f"{stream!r}; add one from {' or '.join(map(repr, plan.carriers(stream)))}"
                    )
    streams = {output.name: output.stream for output in graph.outputs}
    for subscription in plan.subscriptions:
        stream = streams[subscription.output]
        if (stream, subscription.name) not in fed:
            raise PlanError(
                f"application {subscription.name!r}: no branch brings it {stream!r}; "
                f"add one from {' or '.join(map(repr, plan.carriers(stream)))}"
            )


def _listed(kind: str, names: Sequence[str]) -> str:
    return f"the {kind} are {', '.join(names)}" if names else f"there are no {kind}"
