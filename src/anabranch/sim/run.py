"""``simulate``: a query, its inputs, a topology, a plan and faults in; what every application received, and
when, out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa

from anabranch.engines.arrow import ArrowEngine
from anabranch.graph import Graph, Source
from anabranch.input_tables import HasGraph, check_inputs, graph_of
from anabranch.plan import Plan, check_plan
from anabranch.protocols.application import Application
from anabranch.protocols.events import Event
from anabranch.protocols.producer import Producer
from anabranch.protocols.rejoin import Rejoin
from anabranch.protocols.settings import Settings
from anabranch.sim.faults import Burst, Crash, Cut, Fault, Slow, SlowDisk, Stall, check_faults
from anabranch.sim.network import SECOND, LinkUse
from anabranch.sim.nodes import ApplicationNode, Offer, SiteNode
from anabranch.sim.simulation import Simulation
from anabranch.streams.batch import TIMESTAMP, Batch, Ints, ints, with_ids
from anabranch.topology import Topology
from anabranch.types import arrow_schema

LARGEST_DELAYS = 3
"""Branches are open before the first tuple: sites start this many of the longest delays, and two seconds,
earlier."""


class FilterUse(msgspec.Struct, frozen=True):
    """A duplicate filter at the end of a run: for each branch, how often it delivered first, second, ..., and
    how many tuples it delivered in all."""

    at: str
    stream: str
    branches: tuple[str, ...]
    ranks: tuple[tuple[int, ...], ...]
    received: tuple[int, ...]
    live: int


class Sample(msgspec.Struct, frozen=True):
    """A site's memory and disk at a time: tuples in its duplicate filters, records and bytes in its log."""

    time: int
    site: str
    filtered: int
    records: int
    bytes: int


class Metrics(msgspec.Struct, frozen=True):
    """``network_cost`` is the paper's: the sum over all branches of rate times latency, in bytes."""

    links: dict[tuple[str, str], LinkUse]
    filters: tuple[FilterUse, ...]
    samples: tuple[Sample, ...]
    network_cost: float
    steps: int
    seconds: float


class Run:
    """What came of a simulation.

    ``outputs``: for each output, the tuples in order of delivery with the time of it, ``delivered``; where
    several applications subscribe to an output, those of the first. ``deliveries``: the same for each
    application.
    """

    def __init__(
        self,
        outputs: dict[str, pa.Table],
        deliveries: dict[str, pa.Table],
        accepted: dict[str, pa.Table],
        events: tuple[tuple[int, Event], ...],
        metrics: Metrics,
        stalled: dict[str, int],
        digest: str,
    ) -> None:
        self.outputs = outputs
        self.deliveries = deliveries
        self.accepted = accepted
        """Of sources whose timestamps the entry points give: the tuples as they were stamped."""
        self.events = events
        """With the time of each."""
        self.metrics = metrics
        self.stalled = stalled
        """Applications that have not seen the end of their stream, with the punctuation where it stands."""
        self.digest = digest

    @property
    def complete(self) -> bool:
        return not self.stalled


def simulate(
    query: Graph | HasGraph,
    inputs: Mapping[str, pa.Table],
    topology: Topology,
    plan: Plan,
    faults: Sequence[Fault] = (),
    seed: int = 0,
    settings: Settings | None = None,
    patience: float = 60.0,
    sample_every: float | None = None,
    fingerprint: bool = True,
    outside: bool = False,
) -> Run:
    """Runs the query as planned and returns what its applications received.

    ``inputs``: for each source a table with ``ts``, the declared columns and, if tuples come later than their
    timestamps, ``arrival``. The run ends when every application has seen the end of its stream, or
    ``patience`` seconds of simulated time after the last input and fault. ``seed`` goes into the generations
    of logs, so that runs with different seeds have different digests. ``outside``: engines are processes of
    their own, as Spark's are, with micro-batches and checkpoints.
    """
    graph = graph_of(query)
    tables = check_inputs(graph, inputs)
    check_plan(plan, graph, topology)
    check_faults(faults, graph, topology)
    settings = settings or Settings()
    offers = {source.name: _offers(source, tables[source.name]) for source in graph.sources}
    times = [time for of_source in offers.values() for time, _ in of_source]
    first, last = (min(times), max(times)) if times else (0, 0)
    begin = first - LARGEST_DELAYS * _longest_delay(topology) - 2 * SECOND
    simulation = Simulation(
        graph,
        topology,
        plan,
        faults,
        settings,
        lambda operators, exports, at: ArrowEngine(graph, operators, exports, at),
        begin,
        seed,
        fingerprint,
        outside,
    )
    for subscription in plan.subscriptions:
        output = next(o for o in graph.outputs if o.name == subscription.output)
        ordered = output.order == "timestamp"
        application = Application(subscription.name, output.stream, ordered, settings, begin)
        simulation.add_application(application, subscription.site)
    for source in graph.sources:
        _add_producers(simulation, source, plan, offers[source.name], last)
    samples: list[Sample] = []
    if sample_every is not None:
        _sample(simulation, samples, round(sample_every * SECOND))
    simulation.start()
    simulation.run(max([last, *(_over(fault) for fault in faults)]) + round(patience * SECOND))
    return _run(simulation, samples, begin)


def _offers(source: Source, table: pa.Table) -> list[Offer]:
    """The source's tuples by the time they reach the producer."""
    rows = table.combine_chunks()
    if not rows.num_rows:
        return []
    names = [column.name for column in source.columns]
    stamped = source.timestamps == "source"
    batch = rows.select((["ts"] if stamped else []) + names).to_batches()[0]
    arrives = "arrival" if "arrival" in rows.column_names and "arrival" not in names else "ts"
    arrivals: Ints = ints(rows.column(arrives).combine_chunks().view(pa.int64()))
    cuts = [0, *(i for i in range(1, len(arrivals)) if arrivals[i] != arrivals[i - 1]), len(arrivals)]
    return [(int(arrivals[a]), batch.slice(a, b - a)) for a, b in pairwise(cuts)]


def _over(fault: Fault) -> int:
    """When the last of a fault happens."""
    match fault:
        case Crash(until=None):
            return round(fault.at * SECOND)
        case Crash() | Cut() | Stall() | Slow() | SlowDisk() | Burst():
            return round((fault.until or fault.at) * SECOND)
        case _:
            return round(fault.at * SECOND)


def _longest_delay(topology: Topology) -> int:
    return max((max(link.delay) for link in topology.links), default=0)


def _add_producers(
    simulation: Simulation, source: Source, plan: Plan, offers: list[Offer], last: int
) -> None:
    """One producer a source; or one an entry point, where streams arrive replicated from outside, and where
    each entry point reads the source by itself: there it is the same producer at all."""
    slides = simulation.graph.slides(source.name)
    entries = plan.entries[source.name]
    lists = [(entry,) for entry in entries] if source.identity != "sequence" else [entries]
    closing: Offer = (last + 1, None)
    for each in lists:
        name = source.name if len(lists) == 1 else f"{source.name}@{each[0]}"
        called = source.name if source.identity == "partition" else name
        producer = Producer(source, called, each, slides, simulation.settings)
        simulation.add_producer(producer, f"producer/{name}", each[0], [*offers, closing])


def _sample(simulation: Simulation, samples: list[Sample], every: int) -> None:
    for node in simulation.sites.values():
        agent = node.agent
        filtered = 0 if agent is None else sum(i.rejoin.filter.live for i in agent.ingresses.values())
        records = sum(len(stream.records) for stream in node.disk.streams.values())
        samples.append(Sample(simulation.now, node.name, filtered, records, node.disk.bytes))
    simulation.at(simulation.now + every, _sample, simulation, samples, every)


def _run(simulation: Simulation, samples: list[Sample], begin: int) -> Run:
    deliveries = {name: _deliveries(simulation, node) for name, node in simulation.applications.items()}
    outputs: dict[str, pa.Table] = {}
    for subscription in simulation.plan.subscriptions:
        outputs.setdefault(subscription.output, deliveries[subscription.name])
    seconds = max(1, simulation.now - begin) / SECOND
    links = simulation.network.use
    cost = sum(use.cost for use in links.values()) / seconds
    metrics = Metrics(links, tuple(_filters(simulation)), tuple(samples), cost, simulation.steps, seconds)
    stalled = {
        name: node.application.rejoin.frontier.punctuation
        for name, node in simulation.applications.items()
        if node.complete_at is None
    }
    digest = simulation.fingerprint.hexdigest if simulation.fingerprint is not None else ""
    accepted = {
        source.name: _accepted(simulation, source)
        for source in simulation.graph.sources
        if source.timestamps == "entry"
    }
    return Run(outputs, deliveries, accepted, tuple(simulation.events), metrics, stalled, digest)


def _deliveries(simulation: Simulation, node: ApplicationNode) -> pa.Table:
    schema = arrow_schema(simulation.graph.schema(node.application.stream))
    batches = [rows for _, rows in node.delivered]
    table = pa.Table.from_batches(batches, with_ids(schema))
    delivered = pa.array([time for time, rows in node.delivered for _ in range(rows.num_rows)], pa.int64())
    return _public(table).append_column("delivered", delivered.view(TIMESTAMP))


def _public(table: pa.Table) -> pa.Table:
    """``ts``, the user's columns, and the ids behind them."""
    names = table.column_names
    return table.select([names[0], *names[3:], names[1], names[2]]).rename_columns(
        ["ts", *names[3:], "_hi", "_lo"]
    )


def _accepted(simulation: Simulation, source: Source) -> pa.Table:
    seen: set[tuple[Any, Any]] = set()
    batches: list[Batch] = []
    for record in simulation.kept.get(source.name, []):
        if record.rows is None:
            continue
        for i in range(record.rows.num_rows):
            row = record.rows.slice(i, 1)
            key = (row.column(1)[0].as_py(), row.column(2)[0].as_py())
            if key not in seen:
                seen.add(key)
                batches.append(row)
    return _public(pa.Table.from_batches(batches, with_ids(arrow_schema(source.columns))))


def _filters(simulation: Simulation) -> list[FilterUse]:
    rejoins: list[Rejoin] = [node.application.rejoin for node in simulation.applications.values()]
    sites: list[SiteNode] = [node for node in simulation.sites.values() if node.agent is not None]
    for site in sites:
        assert site.agent is not None
        rejoins += [ingress.rejoin for ingress in site.agent.ingresses.values()]
    return [
        FilterUse(
            r.at,
            r.stream,
            tuple(r.names),
            tuple(tuple(int(n) for n in row) for row in r.filter.ranks),
            tuple(r.received),
            r.filter.live,
        )
        for r in rejoins
    ]
