"""The queries that live sites and plain Spark are measured with."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.graph import Graph
from anabranch.query import Query

COLUMNS = "key bigint, load double"
RTT = "key bigint, ms double"
WINDOW = "1 second"
JOIN_WITHIN = "100 milliseconds"


def stateless() -> Graph:
    """A filter that all tuples pass and a map: what comes in goes out."""
    q = Query("bench")
    load = q.source("load", COLUMNS)
    q.output("out", load.where("load >= 0").select(key="key", load="load * 2", name="made"))
    return q.graph


def join() -> Graph:
    """Two streams, by key and time."""
    q = Query("bench")
    load, rtt = q.source("load", COLUMNS), q.source("rtt", RTT)
    q.output("out", load.join(rtt, on="key", within=JOIN_WITHIN, name="made"))
    return q.graph


def aggregate() -> Graph:
    """Counts and maxima of tumbling windows."""
    q = Query("bench")
    load = q.source("load", COLUMNS)
    made = load.aggregate(WINDOW, every=WINDOW, by="key", n="count(*)", worst="max(load)", name="made")
    q.output("out", made)
    return q.graph


QUERIES: dict[str, Callable[[], Graph]] = {"stateless": stateless, "join": join, "aggregate": aggregate}
