"""The flow model against the event simulator, and against times worked out by hand."""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.fuzz.case import Case
from anabranch.fuzz.draw import draw
from anabranch.graph import Graph
from anabranch.plan import Plan, Subscription, full_mesh
from anabranch.protocols.settings import Settings
from anabranch.sim.flow import FlowError, flow
from anabranch.sim.flow.summary import Distribution
from anabranch.sim.flow.unrolling import Unrolling
from anabranch.sim.run import simulate
from anabranch.topology import Link, Site, Topology, constant

SEED, CASES = 60, 72
RELAYS = ((4711, 531), (4711, 1071))
"""Cases in which a way round through another entry point is shorter than the one from the origin."""


def calm(index: int, seed: int = SEED) -> tuple[Case, Settings]:
    """A drawn case without faults and without what the flow model does not cover."""
    case = draw(seed, index)
    links = tuple(msgspec.structs.replace(link, bandwidth=0.0) for link in case.topology.links)
    sites = tuple(msgspec.structs.replace(site, retention=600_000_000) for site in case.topology.sites)
    sources = tuple(msgspec.structs.replace(s, timestamps="source") for s in case.graph.sources)
    graph = msgspec.structs.replace(case.graph, sources=sources)
    chosen = {name: value for name, value in case.settings.items() if name != "branch_window"}
    return msgspec.structs.replace(case, graph=graph, topology=Topology(sites, links)), Settings(**chosen)


def deliveries(table: pa.Table) -> list[tuple[int, ...]]:
    """Timestamp, id and time of delivery of each tuple, sorted."""
    columns = [table.column(name).cast(pa.int64()).to_pylist() for name in ("ts", "_hi", "_lo", "delivered")]
    return sorted(zip(*columns, strict=True))


@pytest.mark.parametrize(("seed", "index"), [*((SEED, index) for index in range(CASES)), *RELAYS])
def test_first_arrival_is_optimal(seed: int, index: int) -> None:
    case, chosen = calm(index, seed)
    run = simulate(case.graph, case.inputs, case.topology, case.plan, settings=chosen, fingerprint=False)
    expected = flow(case.graph, case.inputs, case.topology, case.plan, chosen)
    assert run.complete
    assert {name: deliveries(table) for name, table in run.deliveries.items()} == {
        name: deliveries(table) for name, table in expected.items()
    }


def test_the_cases_are_worth_comparing() -> None:
    cases = [calm(index)[0] for index in range(CASES)]
    operators = {type(operator).__name__ for case in cases for operator in case.graph.operators}
    assert operators == {
        "Filter", "Map", "Union", "Join", "Aggregate", "CountAggregate", "TopK", "Custom"
    }  # fmt: skip
    customs = [o for case in cases for o in case.graph.operators if type(o).__name__ == "Custom"]
    assert {custom.window is None for custom in customs} == {True, False}
    assert {"timestamp", None} == {output.order for case in cases for output in case.graph.outputs}
    assert {"sequence", "content"} == {s.identity for case in cases for s in case.graph.sources}
    assert {
        min(case.plan.mirrors, len(sites) - 1) for case in cases for sites in case.plan.entries.values()
    } == {0, 1, 2}
    assert any(len(link.at) > 1 for case in cases for link in case.topology.links)
    assert any("arrival" in table.column_names for case in cases for table in case.inputs.values())
    assert sum(len(case.plan.subscriptions) for case in cases) > CASES


def test_one_site_adds_no_bytes_and_no_latency() -> None:
    q = ab.Query("q")
    load = q.source("load", "load double")
    q.output("all", load.where("load > 0.1").select(load="load * 2").union(load))
    alone = Topology((Site("a"),), ())
    plan = full_mesh(
        q.graph, {"load": ["a"]}, {o: ["a"] for o in q.graph.order()}, [Subscription("app", "all", "a")]
    )
    inputs = {"load": pa.table({"ts": np.arange(50) * 100_000, "load": np.arange(50) / 50})}
    run = simulate(q, inputs, alone, plan)
    times = flow(q, inputs, alone, plan)["app"]
    assert run.metrics.links == {}
    assert times.num_rows == 94
    assert times.column("delivered").equals(times.column("ts"))
    assert deliveries(run.deliveries["app"]) == deliveries(times)


def near_and_far() -> Topology:
    """a - b: 10 and 11 us; a - c: 100; b - c: 20."""
    delays = {"ab": 10, "ba": 11, "ac": 100, "ca": 100, "bc": 20, "cb": 20}
    return Topology(tuple(map(Site, "abc")), tuple(constant(a, b, delay) for (a, b), delay in delays.items()))


def one_source(
    ts: list[int], mirrors: int, entries: str, replicas: str
) -> tuple[Graph, dict[str, pa.Table], Topology, Plan]:
    """A source, a filter that passes all, and an application at c."""
    q = ab.Query("q")
    q.output("out", q.source("s", "x bigint").where("x > 0", name="some"))
    app = Subscription("app", "out", "c")
    plan = full_mesh(q.graph, {"s": entries}, {"some": replicas}, [app], mirrors=mirrors)
    return q.graph, {"s": pa.table({"ts": ts, "x": [1] * len(ts)})}, near_and_far(), plan


@pytest.mark.parametrize(
    ("mirrors", "entries", "replicas", "delivered"),
    [
        (1, "a", "a", 1100),  # the one way there is
        (1, "a", "ab", 1030),  # by b: 10 + 20
        (0, "ab", "a", 1100),  # shown at once
        (1, "ab", "a", 1121),  # the origin waits for b's word: 10 + 11
        (1, "ab", "ab", 1030),  # but b shows what it holds
        (1, "cab", "b", 1040),  # the origin, c, by b and back
        (2, "abc", "b", 1230),  # the origin has both peers' word after 200, then 10 + 20
    ],
)
def test_entry_points_by_hand(mirrors: int, entries: str, replicas: str, delivered: int) -> None:
    times = flow(*one_source([1000], mirrors, entries, replicas))["app"]
    assert times.column("delivered").cast(pa.int64()).to_pylist() == [delivered]


def test_what_waits_for_punctuation_by_hand() -> None:
    """A window that ends at e appears with the promise e, which leaves its source at e + 1; where order was
    asked for, a tuple is delivered with the first promise that reaches it."""
    q = ab.Query("q")
    pairs = q.source("l", "x bigint").join(q.source("r", "y bigint"), within="1 ms", name="pairs")
    q.output("sorted", pairs, order="timestamp")
    q.output("counts", pairs.aggregate("2 seconds", n="count(*)", name="counts"))
    plan = full_mesh(
        q.graph,
        {"l": "a", "r": "c"},
        {"pairs": "b", "counts": "c"},
        [Subscription("app", "sorted", "a"), Subscription("far", "counts", "a")],
    )
    inputs = {
        "l": pa.table({"ts": [500_000, 2_900_000], "x": [1, 2]}),
        "r": pa.table({"ts": [500_900, 2_900_000], "y": [1, 2]}),
    }
    times = flow(q, inputs, near_and_far(), plan)
    # the promises of each second, and END 1 us after the last input, reach b after 20 from c, then a after 11
    assert times["app"].column("delivered").cast(pa.int64()).to_pylist() == [1_000_032, 2_900_032]
    # the same to b, then 20 to c and 100 to a
    assert times["far"].column("delivered").cast(pa.int64()).to_pylist() == [2_000_141, 2_900_141]


def test_narrow_links_are_refused_where_they_are_used() -> None:
    graph, inputs, topology, plan = one_source([1000], 1, "a", "b")
    narrow = {("a", "b"): 1e6, ("c", "a"): 1e6}
    links = tuple(
        msgspec.structs.replace(link, bandwidth=narrow.get((link.source, link.target), 0.0))
        for link in topology.links
    )
    with pytest.raises(FlowError, match="from 'a' to 'b', which the branch of 's' takes, has a limited"):
        flow(graph, inputs, Topology(topology.sites, links), plan)
    unused = tuple(
        msgspec.structs.replace(link, bandwidth=0.0) if link.target == "b" else link for link in links
    )
    assert flow(graph, inputs, Topology(topology.sites, unused), plan)["app"].num_rows == 1


def test_timestamps_of_entry_points_are_refused() -> None:
    q = ab.Query("q")
    q.output("out", q.source("s", "x bigint", timestamps="entry").where("x > 0", name="some"))
    plan = full_mesh(q.graph, {"s": "a"}, {"some": "b"}, [Subscription("app", "out", "c")])
    with pytest.raises(FlowError, match="source 's': its entry points give the timestamps"):
        flow(q, {"s": pa.table({"ts": [1], "x": [1]})}, near_and_far(), plan)


def test_mirroring_beyond_the_protocols_patience_is_refused() -> None:
    graph, inputs, topology, plan = one_source([1000], 1, "ab", "b")
    hasty = Settings(mirror_patience=21)
    with pytest.raises(FlowError, match="source 's': mirroring takes up to"):
        flow(graph, inputs, topology, plan, hasty)
    assert flow(graph, inputs, topology, plan, msgspec.structs.replace(hasty, mirror_patience=22))


def test_entry_points_that_may_remind_each_other_of_what_is_on_its_way_are_refused() -> None:
    graph, inputs, topology, plan = one_source([1000], 1, "abc", "b")
    hasty = Settings(mirror_retry=100)
    with pytest.raises(FlowError, match="source 's': from 'a' to 'c' it takes up to"):
        flow(graph, inputs, topology, plan, hasty)
    assert flow(graph, inputs, topology, plan, msgspec.structs.replace(hasty, mirror_retry=101))


def test_back_pressure_is_refused() -> None:
    case = one_source(list(range(1000, 1200)), 1, "a", "b")
    with pytest.raises(FlowError, match="records on the way, but branch_window is 200"):
        flow(*case, Settings(branch_window=200))
    assert flow(*case, Settings(branch_window=500))["app"].num_rows == 200


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 400), min_size=2, max_size=12),
    st.integers(1, 60),
    st.integers(1, 4),
    st.data(),
)
def test_delays_unrolled_are_those_of_a_topology(
    delays: list[int], every: int, block: int, data: st.DataObject
) -> None:
    def steps(first: int, count: int) -> np.ndarray:
        given = np.array([delays[min(i, len(delays) - 1)] for i in range(first, first + count)])
        return np.tile(given[:, None, None], (1, 2, 2))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("anabranch.sim.flow.unrolling._BLOCK", block)
        unrolling = Unrolling(["a", "b"], every, steps)
        link = Link(
            "a",
            "b",
            tuple(i * every for i in range(len(delays) + 9)),
            tuple(steps(0, len(delays) + 9)[:, 0, 0]),
        )
        begin = 0
        for _ in range(4):
            end = data.draw(st.integers(begin, every * (len(delays) + 7)))
            t = np.arange(begin, end + 1)
            assert unrolling.delays_at("a", "b", t).tolist() == link.delays_at(t).tolist()
            begin = data.draw(st.integers(begin, end))
            unrolling.forget(begin)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 10**11), min_size=1, max_size=60), st.floats(0.001, 1))
def test_quantiles_of_a_distribution(values: list[int], q: float) -> None:
    whole, first, second = Distribution(), Distribution(), Distribution()
    whole.add(np.array(values))
    first.add(np.array(values[::2]))
    second.add(np.array(values[1::2], np.int64))
    first.merge(second)
    exact = sorted(values)[int(np.ceil(q * len(values))) - 1]
    assert abs(whole.quantile(q) - exact) <= exact / 100
    assert (first.count, first.total, first.most) == (len(values), sum(values), max(values))
    assert first.histogram() == whole.histogram()
