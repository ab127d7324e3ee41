"""``flow``: when each tuple reaches each application if nothing fails, without events."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from anabranch.engines.ideal import accepted, ideal_streams
from anabranch.graph import Graph, Source
from anabranch.input_tables import HasGraph, check_inputs, graph_of
from anabranch.plan import Plan, check_plan
from anabranch.protocols.settings import Settings
from anabranch.sim.flow.entrance import Entrance
from anabranch.sim.flow.limits import check_covered, check_pressure, check_reminders
from anabranch.sim.flow.lineage import Ids, Lineage, trace
from anabranch.sim.flow.passage import Passage
from anabranch.streams.batch import TIMESTAMP, Ints, ids, timestamps
from anabranch.topology import Topology


def flow(
    query: Graph | HasGraph,
    inputs: Mapping[str, pa.Table],
    topology: Topology,
    plan: Plan,
    settings: Settings | None = None,
) -> dict[str, pa.Table]:
    """For each application of the plan the tuples it receives: ``ts``, ``_hi``, ``_lo`` and ``delivered``, in
    order of delivery. What ``simulate`` yields without faults, to the microsecond.

    Raises FlowError where times depend on more than delays: a link in use of limited bandwidth, a source
    whose entry points give the timestamps, mirroring that takes longer than the protocols wait,
    back-pressure.

    >>> import anabranch as ab
    >>> from anabranch.plan import Subscription, full_mesh
    >>> from anabranch.topology import Site, Topology, constant
    >>> q = ab.Query("q")
    >>> q.output("busy", q.source("load", "load double").where("load > 0.5", name="busy"))
    >>> near = Topology((Site("a"), Site("b")), (constant("a", "b", 35_000), constant("b", "a", 40_000)))
    >>> plan = full_mesh(q.graph, {"load": ["a"]}, {"busy": ["a", "b"]}, [Subscription("app", "busy", "b")])
    >>> tuples = flow(q, {"load": pa.table({"ts": [1, 2], "load": [0.1, 0.9]})}, near, plan)["app"]
    >>> tuples["delivered"].cast("int64").to_pylist()
    [35002]
    """
    graph = graph_of(query)
    tables = check_inputs(graph, inputs)
    check_plan(plan, graph, topology)
    settings = settings or Settings()
    check_covered(graph, topology, plan)
    check_reminders(graph, topology, plan, settings)
    arrivals = {source.name: _arrivals(source, tables[source.name]) for source in graph.sources}
    close = max((int(times[-1]) for times in arrivals.values() if len(times)), default=0) + 1
    entrances = {
        source.name: _entrance(
            graph, source, topology, plan, settings, np.unique(arrivals[source.name]), close
        )
        for source in graph.sources
    }
    sources = {
        source.name: _entered(source, tables[source.name], arrivals[source.name], entrances[source.name])
        for source in graph.sources
    }
    lineages = trace(graph, ideal_streams(graph, tables), sources)
    passage = Passage(
        graph, plan, topology, entrances, {name: lineage for name, (lineage, _) in lineages.items()}
    )
    check_pressure(plan, topology, settings, entrances, passage)
    streams = {output.name: output.stream for output in graph.outputs}
    return {
        subscription.name: _table(*lineages[streams[subscription.output]], passage.delivered(subscription))
        for subscription in plan.subscriptions
    }


def _entrance(
    graph: Graph,
    source: Source,
    topology: Topology,
    plan: Plan,
    settings: Settings,
    arrivals: Ints,
    close: int,
) -> Entrance:
    periods = (settings.punctuation_interval, *graph.slides(source.name))
    patience = min(settings.producer_timeout, settings.mirror_patience)
    sites = plan.entries[source.name]
    return Entrance(source, sites, plan.mirrors, arrivals, close, periods, patience, topology)


def _arrivals(source: Source, table: pa.Table) -> Ints:
    """When each row reaches the producer."""
    own = "arrival" in [column.name for column in source.columns]
    given = "arrival" in table.column_names and not own
    times: Ints = table.column("arrival" if given else "ts").cast(pa.int64()).to_numpy()
    return times


def _entered(source: Source, table: pa.Table, arrivals: Ints, entrance: Entrance) -> tuple[Lineage, Ids]:
    """The tuples of a source that are not late."""
    rows = accepted(source, table)
    if rows is None:
        none = np.empty(0, np.int64)
        return Lineage(none, (none,)), (none, none)
    in_time = arrivals - table.column("ts").cast(pa.int64()).to_numpy() <= source.lateness
    places = np.searchsorted(entrance.arrivals, arrivals[in_time])
    return Lineage(timestamps(rows), (places,)), ids(rows)


def _table(lineage: Lineage, ids: Ids, delivered: Ints) -> pa.Table:
    hi, lo = ids
    order = np.lexsort((lo, hi, lineage.ts, delivered))
    times = [pa.array(column[order]).view(TIMESTAMP) for column in (lineage.ts, delivered)]
    return pa.table(
        [times[0], pa.array(hi[order]), pa.array(lo[order]), times[1]], ["ts", "_hi", "_lo", "delivered"]
    )
