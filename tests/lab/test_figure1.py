"""Figure 1's query: the flow model lot by lot against the flow model at once, and the measurement."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from anabranch.lab.bench_sim import measure
from anabranch.lab.figure1 import SECOND, Figure1, run
from anabranch.plan import Plan
from anabranch.sim.flow import flow
from anabranch.sim.flow.lots import flow_in_lots
from anabranch.sim.flow.summary import Distribution, Summary
from anabranch.sim.flow.unrolling import Unrolling
from anabranch.topology import Link, Site, Topology

ROUNDS = 17


def storms(n: int) -> Callable[[int, int], np.ndarray]:
    """Delays from 10 ms to 10 s that change with every step, so that some messages would overtake others."""

    def steps(first: int, count: int) -> np.ndarray:
        return np.stack(
            [
                np.random.default_rng([3, i]).integers(10_000, 10_000_000, (n, n))
                for i in range(first, first + count)
            ]
        )

    return steps


def topology(figure: Figure1, count: int) -> Topology:
    """The same delays as points of links."""
    delays = storms(figure.hosts)(0, count)
    at = tuple(range(0, count * figure.period, figure.period))
    links = [
        Link(a, b, at, tuple(delays[:, i, j].tolist()))
        for i, a in enumerate(figure.names)
        for j, b in enumerate(figure.names)
        if a != b
    ]
    return Topology(tuple(map(Site, figure.names)), tuple(links))


def at_once(figure: Figure1, network: Topology, plan: Plan) -> dict[str, Distribution]:
    found = {}
    for name, table in flow(figure.graph(), figure.inputs(ROUNDS), network, plan).items():
        found[name] = Distribution()
        delivered, ts = (table.column(column).cast(pa.int64()).to_numpy() for column in ("delivered", "ts"))
        found[name].add(delivered - ts)
    return found


def totals(summary: dict[str, Distribution]) -> dict[str, tuple[object, ...]]:
    return {name: (d.count, d.total, d.most, d.histogram()) for name, d in summary.items()}


@pytest.mark.parametrize("within", [10 * SECOND, 25 * SECOND])
def test_lots_add_up(within: int) -> None:
    figure = Figure1(hosts=5, within=within, applications=3)
    network = topology(figure, ROUNDS + 20)
    graph, plan = figure.graph(), figure.plan(network, 3)
    summaries: list[Summary] = []
    for size in (1, 4, ROUNDS):
        unrolling = Unrolling(figure.names, figure.period, storms(5))
        lots = figure.lots(graph, plan, unrolling, ROUNDS, size)
        summaries.append(flow_in_lots(graph, plan, unrolling, lots))
    expected = totals(at_once(figure, network, plan))
    assert len(expected) == 3
    for summary in summaries:
        assert totals(summary.latencies) == expected
        assert summary.branches == summaries[-1].branches
    pairs = 5 * ROUNDS if within == figure.period else 5 * (ROUNDS + 2 * (ROUNDS - 1) + 2 * (ROUNDS - 2))
    carried = {branch.stream: use.tuples for branch, use in summaries[0].branches.items()}
    assert carried["load_host01"] == ROUNDS
    assert carried["latencies"] == 5 * ROUNDS
    assert carried["pairs"] == carried["all"] == pairs


def test_replicas_make_the_worst_better_and_cost_more() -> None:
    figure = Figure1(hosts=6, applications=3)
    single, replicated = (run(figure, 300, k) for k in (1, 3))
    assert single.latency.count == replicated.latency.count == 3 * 6 * 300
    assert replicated.latency.quantile(0.99) < single.latency.quantile(0.99)
    sizes = figure.tuple_bytes()
    assert sizes["pairs"] > sizes["loads"] > 64
    cost = [sum(each.network_cost(sizes, 3000).values()) for each in (single, replicated)]
    assert 0 < cost[0] < cost[1]


def test_measure_reports_what_it_measured() -> None:
    found = measure(hour=4, month=50)
    assert found["flow_month_deliveries"] == 10 * 30 * 50
    assert all(value > 0 for value in found.values())
    assert set(found) >= {"events_s", "tuples_s", "figure1_hour_s", "flow_month_s", "flow_month_peak_mb"}
