"""The queries under which sites are broken: four sites, two copies of everything, and real delays between."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

import anabranch as ab
from anabranch.graph import Graph
from anabranch.lab.places import world
from anabranch.plan import Plan, Subscription, copies, full_mesh
from anabranch.topology import Topology

SITES = ("dublin", "frankfurt", "singapore", "virginia")
RATE = 60.0
"""Tuples a second of each source."""


class Scene(msgspec.Struct, frozen=True):
    name: str
    graph: Graph
    plan: Plan

    @property
    def topology(self) -> Topology:
        return world(SITES)

    @property
    def rates(self) -> dict[str, float]:
        return {source.name: RATE for source in self.graph.sources}

    @property
    def entries(self) -> tuple[str, ...]:
        """The sites whose clock or log tuples pass on their way in."""
        return tuple(dict.fromkeys(site for sites in self.plan.entries.values() for site in sites))

    @property
    def engines(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(site for sites in self.plan.replicas.values() for site in sites))


def stateless() -> Scene:
    """The entry points are where nothing is computed."""
    q = ab.Query("stateless")
    load = q.source("load", "host string, load double, n int")
    busy = load.where("load > 0.2", name="busy")
    made = busy.select(host="upper(host)", percent="load * 100", n="n + 1", name="made")
    q.output("out", made.where("n % 10 <> 0", name="kept"))
    chain = ("frankfurt", "virginia")
    return _scene(
        q, {"load": ("dublin", "singapore")}, {"busy": chain, "made": chain, "kept": chain}, "dublin"
    )


def union_join() -> Scene:
    """Union and join in one streaming query; one site is an entry point and computes."""
    q = ab.Query("union_join")
    west = q.source("west", "host string, load double")
    east = q.source("east", "host string, load double")
    rtt = q.source("rtt", "host string, ms double")
    loads = west.union(east, name="loads")
    pairs = loads.join(rtt, on="host", within="500 ms", where="ms > 0.7 AND load > 0.6", name="pairs")
    q.output("out", pairs)
    entries = {
        "west": ("dublin", "frankfurt"),
        "east": ("frankfurt", "dublin"),
        "rtt": ("dublin", "frankfurt"),
    }
    application = Subscription("app", "out", "singapore")
    return Scene(q.graph.name, q.graph, copies(q.graph, entries, ("frankfurt", "virginia"), (application,)))


def join_window() -> Scene:
    """A window over a join, with branches between the sites there too."""
    q = ab.Query("join_window")
    load = q.source("load", "host string, load double")
    rtt = q.source("rtt", "host string, ms double")
    pairs = load.join(rtt, on="host", within="500 ms", where="ms > 0.5 AND load > 0.3", name="pairs")
    worst = pairs.aggregate(
        "2 seconds", every="1 second", by="host", n="count(*)", worst="max(ms)", name="worst"
    )
    q.output("out", worst)
    return _scene(
        q,
        {"load": ("dublin", "singapore"), "rtt": ("singapore", "dublin")},
        {"pairs": ("frankfurt", "virginia"), "worst": ("virginia", "frankfurt")},
        "dublin",
    )


SCENES: dict[str, Callable[[], Scene]] = {
    each.__name__: each for each in (stateless, union_join, join_window)
}


def _scene(
    query: ab.Query, entries: dict[str, tuple[str, ...]], replicas: dict[str, tuple[str, ...]], near: str
) -> Scene:
    application = Subscription("app", "out", near)
    return Scene(query.graph.name, query.graph, full_mesh(query.graph, entries, replicas, (application,)))
