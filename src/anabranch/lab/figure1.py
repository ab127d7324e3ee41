"""The query of the paper's Figure 1 as its section VI-A runs it: every host reports its CPU load and the
latency of a connection; both kinds of readings are united and joined, all pairs pass a filter, ten
applications take them.

The sources are periodic, so which tuples there are and what each is made of follows from a few numbers: that
is how the flow model runs a month of it, lot by lot."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.engines.ideal import ideal_streams
from anabranch.graph import Graph
from anabranch.plan import Plan, Subscription, spread
from anabranch.query import Query, Stream
from anabranch.sim.flow.entrance import Entrance
from anabranch.sim.flow.lineage import Ids, Lineage
from anabranch.sim.flow.lots import Lot, flow_in_lots
from anabranch.sim.flow.summary import Summary
from anabranch.sim.flow.unrolling import Unrolling
from anabranch.streams.batch import TIMESTAMP, Ints
from anabranch.streams.punctuation import END
from anabranch.topology import Topology
from anabranch.traces import Traces

SECOND = 1_000_000
MONTH = 259_200
"""Rounds of ten seconds."""

_LOT = 1_000
_HEADER = 64
"""Bytes of a record without its columns."""


class Figure1(msgspec.Struct, frozen=True):
    """``hosts`` sites. Host i reports both readings in every round, i / hosts of a ``period`` after its
    beginning."""

    hosts: int = 30
    period: int = 10 * SECOND
    within: int = 10 * SECOND
    applications: int = 10

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"host{i + 1:02d}" for i in range(self.hosts))

    def graph(self) -> Graph:
        query = Query("figure1")
        loads = [query.source(f"load_{name}", "host string, load double") for name in self.names]
        latencies = [
            query.source(f"rtt_{name}", "host string, peer string, ms double") for name in self.names
        ]
        within = f"{self.within} microseconds"
        pairs = _union(loads, "loads").join(
            _union(latencies, "latencies"), on="host", within=within, name="pairs"
        )
        query.output("readings", pairs.where("load >= 0", name="all"))
        return query.graph

    def plan(self, topology: Topology, k: int, seed: int = 0) -> Plan:
        """Each operator at ``k`` random sites, each host the one entry point of its readings, the
        applications at different sites."""
        entries = {f"{kind}_{name}": (name,) for kind in ("load", "rtt") for name in self.names}
        sites = np.random.default_rng(seed).permutation(self.hosts)[: self.applications]
        apps = [Subscription(f"app@{self.names[i]}", "readings", self.names[i]) for i in sites]
        return spread(self.graph(), topology, k, entries=entries, apps=apps, seed=seed)

    def inputs(self, rounds: int) -> dict[str, pa.Table]:
        """What the hosts report in these many rounds."""
        tables = {}
        for i, name in enumerate(self.names):
            ts = pa.array(self._times(i, 0, rounds)).view(TIMESTAMP)
            host = pa.array([name] * rounds, pa.string())
            load = pa.array((np.arange(rounds) * 7 + i) % 100 / 100)
            peer = pa.array([self.names[(i + r) % self.hosts] for r in range(rounds)], pa.string())
            ms = pa.array((np.arange(rounds) * 13 + i) % 250 + 0.5)
            tables[f"load_{name}"] = pa.table({"ts": ts, "host": host, "load": load})
            tables[f"rtt_{name}"] = pa.table({"ts": ts, "host": host, "peer": peer, "ms": ms})
        return tables

    def lots(
        self, graph: Graph, plan: Plan, network: Unrolling, rounds: int, size: int = _LOT
    ) -> Iterator[Lot]:
        """These many rounds, ``size`` at a time. A lot begins with as many rounds of the one before as its
        pairs reach back to."""
        for begin in range(0, rounds, size):
            first = max(0, begin - self._reach)
            yield self._lot(graph, plan, network, first, begin, min(begin + size, rounds))

    def _lot(self, graph: Graph, plan: Plan, network: Unrolling, first: int, begin: int, end: int) -> Lot:
        entrances, lineages = {}, {}
        fresh = np.arange(begin - first, end - first)
        for source in graph.sources:
            arrivals = self._times(self.names.index(source.name.partition("_")[2]), first, end)
            sites = plan.entries[source.name]
            entrances[source.name] = Entrance(
                source, sites, plan.mirrors, arrivals, END, (self.period,), END, network
            )
            lineages[source.name] = Lineage(arrivals, (None,), fresh)
        ts = np.concatenate([self._times(i, first, end) for i in range(self.hosts)])
        fresh = (np.arange(self.hosts)[:, None] * (end - first) + fresh).ravel()
        lineages["loads"] = lineages["latencies"] = Lineage(ts, (None,) * self.hosts, fresh)
        left, right = self._pairs(first, begin, end)
        lineages["pairs"] = Lineage(np.maximum(ts[left], ts[right]), (left, right))
        lineages["all"] = Lineage(lineages["pairs"].ts, (None,))
        return Lot(first * self.period, entrances, lineages)

    @property
    def _reach(self) -> int:
        """How many rounds apart the two readings of a pair may be."""
        return (self.within - 1) // self.period

    def _times(self, host: int, first: int, end: int) -> Ints:
        return np.arange(first, end) * self.period + host * self.period // self.hosts

    def _pairs(self, first: int, begin: int, end: int) -> Ids:
        """The pairs whose later reading is in rounds ``begin`` to ``end``: positions among the loads and the
        latencies of rounds ``first`` to ``end``, host by host."""
        rounds = np.arange(begin, end)
        earlier = [rounds[rounds >= lag] - lag for lag in range(self._reach + 1)]
        later = [rounds[rounds >= lag] for lag in range(self._reach + 1)]
        left = np.concatenate([*later, *earlier[1:]]) - first
        right = np.concatenate([*earlier, *later[1:]]) - first
        host = np.arange(self.hosts)[:, None] * (end - first)
        return (host + left).ravel(), (host + right).ravel()

    def tuple_bytes(self) -> dict[str, int]:
        """What a record of one tuple of each stream takes on a link."""
        streams = ideal_streams(self.graph(), self.inputs(1))
        return {name: _HEADER + table.slice(0, 1).nbytes for name, table in streams.items()}


def run(figure: Figure1, rounds: int = MONTH, k: int = 4, seed: int = 0) -> Summary:
    """The flow model over ``rounds`` rounds on a synthetic network, outages included."""
    traces = Traces(figure.names, every=figure.period / SECOND, seed=seed)
    graph, plan = figure.graph(), figure.plan(traces.topology(1), k, seed)
    network = Unrolling(figure.names, figure.period, traces.delays)
    return flow_in_lots(graph, plan, network, figure.lots(graph, plan, network, rounds))


def _union(streams: list[Stream], name: str) -> Stream:
    first, *others = streams
    return first.union(*others, name=name)
