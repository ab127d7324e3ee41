"""The demonstration: the query of the paper's Figure 1 on seven sites; one is killed, another cut off.

The same inputs and the same faults meet two plans: every operator on three sites, and every operator on one.
Both are simulated, and both are held against the ideal run.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.graph import Graph
from anabranch.lab.audit import Audit, audit
from anabranch.lab.places import world
from anabranch.plan import Plan, Subscription, full_mesh
from anabranch.query import Query
from anabranch.sim.faults import Crash, Cut, Fault
from anabranch.sim.run import Run, simulate
from anabranch.streams.batch import TIMESTAMP
from anabranch.topology import Topology

SECOND = 1_000_000
NOON = 1_760_000_400 * SECOND
"""When the inputs begin: 9 October 2025, 09:00 UTC."""

APPLICATION = "oncall"
NEAR = "dublin"
KILLED = "frankfurt"
CUT_OFF = "virginia"
REPLICAS = ("frankfurt", "singapore", "virginia")
ENTRIES = {
    "load_west": ("saopaulo", "virginia", "dublin"),
    "load_east": ("tokyo", "singapore", "sydney"),
    "rtt_west": ("dublin", "saopaulo", "frankfurt"),
    "rtt_east": ("sydney", "tokyo", "singapore"),
}
HOSTS = {"west": ("web-1", "web-2", "db-1"), "east": ("web-3", "web-4", "db-2")}
EVERY = SECOND // 2
"""Between two readings of a host, and between two alerts of one."""


class Scenario(msgspec.Struct, frozen=True):
    """``begin``: the time of the first reading; faults and reports count seconds from there."""

    graph: Graph
    inputs: dict[str, pa.Table]
    topology: Topology
    plan: Plan
    alone: Plan
    faults: tuple[Fault, ...]
    begin: int
    seconds: int
    down: tuple[float, float]
    """When the killed site is down, and below, when the other one is cut off."""
    apart: tuple[float, float]


class Outcome(msgspec.Struct, frozen=True):
    scenario: Scenario
    run: Run
    run_alone: Run
    audit: Audit
    audit_alone: Audit

    @property
    def kept_its_word(self) -> bool:
        """Every result once and none other, and no silence worth the name while a single copy was silent."""
        return self.audit.exact and self.audit.silence_s < self.audit_alone.silence_s


def scenario(seconds: int = 40, seed: int = 1) -> Scenario:
    """``seconds`` of readings, drawn from ``seed``."""
    graph = query().graph
    topology = world()
    rng = np.random.default_rng(seed)
    inputs = {name: readings(rng, name, seconds, NOON) for name in ENTRIES}
    subscriptions = (Subscription(APPLICATION, "alerts", NEAR),)
    down = (round(seconds * 0.25, 1), round(seconds * 0.75, 1))
    apart = (round(seconds * 0.5, 1), round(seconds * 0.7, 1))
    start = NOON // SECOND
    faults: list[Fault] = [Crash(KILLED, start + down[0], start + down[1])]
    for site in topology.names:
        if site != CUT_OFF:
            during = (start + apart[0], start + apart[1])
            faults += [Cut(CUT_OFF, site, *during), Cut(site, CUT_OFF, *during)]
    plans = [
        full_mesh(graph, ENTRIES, {operator.name: sites for operator in graph.operators}, subscriptions)
        for sites in (REPLICAS, (KILLED,))
    ]
    return Scenario(graph, inputs, topology, plans[0], plans[1], tuple(faults), NOON, seconds, down, apart)


def query() -> Query:
    """Hosts under load that see a slow network: the worst latency of each in two seconds, twice a second."""
    q = Query("netwatch")
    load_west, load_east = (q.source(name, "host string, load double") for name in ("load_west", "load_east"))
    rtt_west, rtt_east = (
        q.source(name, "host string, peer string, ms double") for name in ("rtt_west", "rtt_east")
    )
    busy = load_west.union(load_east, name="loads").where("load > 0.5", name="busy")
    latencies = rtt_west.union(rtt_east, name="latencies")
    slow = busy.join(latencies, on="host", within="1 second", where="ms > 50", name="slow")
    worst = slow.aggregate(
        "2 seconds", every="500 ms", by="host", n="count(*)", worst="max(ms)", name="worst"
    )
    q.output("alerts", worst)
    return q


def readings(rng: np.random.Generator, source: str, seconds: int, begin: int) -> pa.Table:
    """What the hosts of one side report, from ``begin`` on."""
    kind, side = source.split("_")
    hosts = HOSTS[side]
    count = seconds * SECOND // EVERY
    # every host reads its own clock: no two of them report in the same microsecond
    at = np.sort(
        (
            np.arange(count)[:, None] * EVERY
            + rng.integers(0, EVERY, (1, len(hosts)))
            + rng.integers(0, 20_000, (count, len(hosts)))
        ).ravel()
    )
    names = [hosts[i] for i in rng.integers(0, len(hosts), len(at))]
    columns: dict[str, pa.Array] = {"ts": pa.array(begin + at).cast(TIMESTAMP), "host": pa.array(names)}
    if kind == "load":
        columns["load"] = pa.array(np.round(rng.beta(4, 2, len(at)), 3))
    else:
        peers = [hosts[i] for i in rng.integers(0, len(hosts), len(at))]
        columns |= {"peer": pa.array(peers), "ms": pa.array(np.round(rng.lognormal(4.2, 0.6, len(at)), 1))}
    return pa.table(columns)


def play(scene: Scenario, seed: int = 1) -> Outcome:
    """Simulates both plans and audits what the application received."""
    runs, audits = [], []
    for plan in (scene.plan, scene.alone):
        run = simulate(scene.graph, scene.inputs, scene.topology, plan, scene.faults, seed=seed)
        runs.append(run)
        audits.append(audit(scene.graph, scene.inputs, plan, run)[APPLICATION])
    return Outcome(scene, runs[0], runs[1], audits[0], audits[1])


def report(outcome: Outcome) -> dict[str, Any]:
    """What ``anabranch demo --json`` prints."""
    scene = outcome.scenario
    return {
        "audit": {name: getattr(outcome.audit, name) for name in ("delivered", "missing", "extra", "exact")},
        "faults": [
            {"what": "killed", "site": KILLED, "at_s": scene.down[0], "until_s": scene.down[1]},
            {"what": "cut off", "site": CUT_OFF, "at_s": scene.apart[0], "until_s": scene.apart[1]},
        ],
        "silence_s": {"replicated": outcome.audit.silence_s, "single_copy": outcome.audit_alone.silence_s},
        "latency_ms": {"replicated": outcome.audit.latency_ms, "single_copy": outcome.audit_alone.latency_ms},
        "first_arrivals": first_arrivals(outcome.run),
        "sites": scene.topology.names,
        "replicas": REPLICAS,
        "seconds": scene.seconds,
        "digest": outcome.run.digest,
    }


def first_arrivals(run: Run) -> dict[str, float]:
    """For each branch to the application, its share of the tuples that arrived there first."""
    use = next(use for use in run.metrics.filters if use.at == APPLICATION)
    firsts = [ranks[0] for ranks in use.ranks]
    return {
        site: round(first / max(sum(firsts), 1), 4) for site, first in zip(use.branches, firsts, strict=True)
    }
