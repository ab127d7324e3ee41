"""The guarantee read aloud: whatever fails, an application receives the ideal run, each tuple once.

The query is that of the paper's Figure 1: two sources of each kind, united, joined, and the pairs aggregated.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.engines.arrow import ArrowEngine
from anabranch.protocols.events import Disagreement
from anabranch.sim.faults import Fault
from anabranch.streams.batch import Batch, timestamps

NAMES = ("paris", "tokyo", "ohio", "sydney")
RTT = [[0, 220, 100, 280], [220, 0, 150, 110], [100, 150, 0, 200], [280, 110, 200, 0]]
SITES = ab.Topology.from_rtt(RTT, NAMES)
T = 1_700_000_000.0
LENGTH = 16
SECOND = 1_000_000
ENTRIES = {
    "load1": ("paris", "tokyo"),
    "load2": ("ohio", "sydney"),
    "rtt1": ("tokyo", "ohio"),
    "rtt2": ("sydney", "paris"),
}
REPLICAS = {
    "loads": ("paris", "tokyo"),
    "rtts": ("ohio", "sydney"),
    "pairs": ("paris", "sydney"),
    "worst": ("ohio", "paris"),
}
APPLICATIONS = (
    ab.Subscription("alerts@tokyo", "alerts", "tokyo"),
    ab.Subscription("pairs@paris", "pairs", "paris"),
)


@cache
def query(stamped_by: str = "source") -> ab.Query:
    q = ab.Query("figure1")
    loads = [q.source(f"load{i}", "host string, load double", timestamps=stamped_by) for i in (1, 2)]
    rtts = [q.source(f"rtt{i}", "host string, peer string, ms double") for i in (1, 2)]
    united = loads[0].union(loads[1], name="loads"), rtts[0].union(rtts[1], name="rtts")
    pairs = united[0].join(united[1], on="host", within="2 seconds", where="ms > 30", name="pairs")
    worst = pairs.aggregate(
        "4 seconds", every="2 seconds", by="host", n="count(*)", worst="max(ms)", name="worst"
    )
    q.output("alerts", worst)
    q.output("pairs", pairs, order="timestamp")
    return q


@cache
def inputs(length: int = LENGTH) -> dict[str, pa.Table]:
    rng = np.random.default_rng(1)
    tables = {}
    for number, name in enumerate(("load1", "load2", "rtt1", "rtt2")):
        count = 5 * length
        ts = pa.array(int(T * SECOND) + np.sort(rng.integers(0, length * SECOND, count))).cast(
            pa.timestamp("us", "UTC")
        )
        host = [f"h{i}" for i in rng.integers(0, 6, count)]
        if number < 2:
            tables[name] = pa.table({"ts": ts, "host": host, "load": rng.random(count)})
        else:
            tables[name] = pa.table(
                {"ts": ts, "host": host, "peer": ["p"] * count, "ms": rng.random(count) * 100}
            )
    return tables


@cache
def ideal() -> dict[str, pa.Table]:
    return ab.ideal(query(), inputs())


def plan(**changes: Any) -> ab.Plan:
    options: dict[str, Any] = {"entries": ENTRIES, "replicas": REPLICAS, **changes}
    entries, replicas = options.pop("entries"), options.pop("replicas")
    return ab.full_mesh(query().graph, entries, replicas, APPLICATIONS, **options)


def simulate(*faults: Fault, of: ab.Plan | None = None, **options: Any) -> ab.Run:
    return ab.simulate(query(), inputs(), SITES, of or plan(), faults, **options)


def rows(table: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


def assert_transparent(run: ab.Run, expected: dict[str, pa.Table] | None = None) -> None:
    expected = expected or ideal()
    assert run.complete, f"nobody should wait for ever: {run.stalled}"
    for output, table in expected.items():
        got, wanted = rows(run.outputs[output], table.column_names), rows(table, table.column_names)
        assert wanted
        assert sorted(got, key=repr) == sorted(wanted, key=repr)
    order = [name for name in expected["pairs"].column_names if not name.startswith("_")]
    assert rows(run.outputs["pairs"], order) == rows(expected["pairs"], order), "asked for in timestamp order"


def slowest(run: ab.Run, output: str = "pairs") -> float:
    table = run.outputs[output]
    delays = table["delivered"].cast(pa.int64()).to_numpy() - table["ts"].cast(pa.int64()).to_numpy()
    return float(delays.max()) / SECOND


def kinds(run: ab.Run) -> set[str]:
    return {type(event).__name__ for _, event in run.events}


def both(kind: Callable[..., Fault], a: str, b: str, at: float, until: float) -> list[Fault]:
    return [kind(a, b, at, until), kind(b, a, at, until)]


SCENARIOS: dict[str, list[Fault]] = {
    "nothing fails": [],
    "a site is killed for good": [ab.Crash("paris", T + 5)],
    "a site is killed and comes back": [ab.Crash("ohio", T + 5, T + 8)],
    "a site loses its log": [ab.Crash("sydney", T + 5, T + 7, keep_log=False)],
    "a site loses the tails of its logs": [ab.Crash("paris", T + 5, T + 7, lose_tail=8)],
    "both sites of a replica in turn": [
        ab.Crash("paris", T + 3, T + 6, keep_log=False),
        ab.Crash("sydney", T + 11, T + 13),
    ],
    "both logs of a replica in turn": [
        ab.Crash("paris", T + 3, T + 4, keep_log=False),
        ab.Crash("sydney", T + 12, T + 13, keep_log=False),
    ],
    "a cut that heals": both(ab.Cut, "paris", "sydney", T + 4, T + 9),
    "a cut in one direction": [ab.Cut("ohio", "paris", T + 4, T + 9)],
    "a site apart from all others": [
        f for name in NAMES[1:] for f in both(ab.Cut, "paris", name, T + 5, T + 10)
    ],
    "a stalled link": [ab.Stall("ohio", "tokyo", T + 4, T + 10)],
    "a slow link": [ab.Slow("sydney", "paris", T + 2, T + 12, 8.0)],
    "a clock half a minute ahead": [ab.ClockOffset("ohio", 30.0, T + 4)],
    "a clock half a minute behind, and then a crash": [
        ab.ClockOffset("ohio", -30.0, T + 4),
        ab.Crash("ohio", T + 6, T + 9),
    ],
    "a clock that runs too fast": [ab.ClockOffset("sydney", 0.0, T + 1, skew=0.05)],
    "a slow disk": [ab.SlowDisk("paris", T + 3, T + 8, 0.05)],
    "connections reset": [
        ab.Reopen("paris", "tokyo", T + 5),
        ab.Reopen("ohio", "paris", T + 6),
        ab.Reopen("sydney", "ohio", T + 6),
    ],
    "records delivered twice": [ab.Redeliver("paris", "ohio", T + t, 50) for t in (4, 8, 15)],
    "a burst": [ab.Burst("load1", T + 3, T + 9), ab.Burst("rtt2", T + 5, T + 8)],
    "a crash behind a cut": [
        ab.Cut("paris", "ohio", T + 4, T + 6),
        ab.Crash("ohio", T + 6, T + 6.4),
        ab.Crash("paris", T + 7),
    ],
    "all at once": [ab.Crash(name, T + 6, T + 7) for name in NAMES],
    "one by one": [ab.Crash(name, T + 3 + 3 * i, T + 5 + 3 * i) for i, name in enumerate(NAMES)],
}


@pytest.mark.parametrize("faults", SCENARIOS.values(), ids=SCENARIOS)
def test_engines_of_their_own_change_nothing_of_it(faults: list[Fault]) -> None:
    crashes = [ab.EngineCrash("paris", T + 6), ab.EngineCrash("ohio", T + 9, keep_checkpoint=False)]
    assert_transparent(simulate(*faults, *crashes, outside=True))


@pytest.mark.parametrize("faults", SCENARIOS.values(), ids=SCENARIOS)
def test_an_application_receives_the_ideal_run(faults: list[Fault]) -> None:
    assert_transparent(simulate(*faults))


def test_when_nothing_fails_nothing_is_reported_and_no_tuple_waits() -> None:
    run = simulate()
    assert run.events == ()
    assert slowest(run, "alerts") < 0.5


def test_a_killed_site_costs_no_tuple_any_time_where_another_path_is_open() -> None:
    """First arrival: no failure detector is on the way of the data."""
    replicas = dict.fromkeys(REPLICAS, ("tokyo", "sydney"))
    entries = dict.fromkeys(ENTRIES, ("tokyo", "ohio"))
    of = plan(entries=entries, replicas=replicas)
    assert slowest(simulate(ab.Crash("sydney", T + 5), of=of)) == slowest(simulate(of=of))


def test_a_source_that_entry_points_stamp_is_as_transparent() -> None:
    q = query("entry")
    of = ab.full_mesh(q.graph, ENTRIES, REPLICAS, APPLICATIONS)
    run = ab.simulate(
        q, inputs(), SITES, of, [ab.Crash("tokyo", T + 5, T + 7), ab.Cut("sydney", "ohio", T + 9, T + 12)]
    )
    assert sorted(rows(run.accepted["load1"], ["host", "load"])) == sorted(
        rows(inputs()["load1"], ["host", "load"])
    )
    assert_transparent(
        run, ab.ideal(q, {**inputs(), **{name: run.accepted[name] for name in ("load1", "load2")}})
    )


def test_a_clock_closes_windows_while_time_goes_on() -> None:
    q = query("entry")
    run = ab.simulate(q, inputs(), SITES, ab.full_mesh(q.graph, ENTRIES, REPLICAS, APPLICATIONS))
    assert slowest(run, "alerts") < 1.0


# --- plans that change


def test_a_replica_is_added_and_one_removed_mid_run() -> None:
    more = {**REPLICAS, "pairs": ("paris", "sydney", "ohio"), "worst": ("ohio", "paris", "tokyo")}
    fewer = {**more, "pairs": ("ohio",), "worst": ("tokyo",)}
    run = simulate(
        ab.Replan("tokyo", T + 4, plan(replicas=more, epoch=2)),
        ab.Replan("ohio", T + 11, plan(replicas=fewer, epoch=3)),
    )
    assert_transparent(run)


def test_two_coordinators_do_no_harm() -> None:
    rivals = [
        plan(replicas={**REPLICAS, "pairs": ("paris", "sydney", chief)}, epoch=2, coordinator=chief)
        for chief in ("ohio", "tokyo")
    ]
    run = simulate(*(ab.Replan(rival.coordinator, T + 5, rival) for rival in rivals))
    assert_transparent(run)


def test_an_operator_moves_to_another_site_at_once() -> None:
    moved = plan(replicas={**REPLICAS, "worst": ("tokyo", "sydney")}, epoch=2)
    assert_transparent(simulate(ab.Replan("paris", T + 6, moved)))


def test_a_replica_added_after_a_log_was_lost_does_not_make_others_forget() -> None:
    """The rule of who may speak: the newcomer is ahead, and must not silence the one that is behind."""
    run = simulate(
        ab.Slow("sydney", "ohio", T + 1, T + 16, 30.0),
        ab.Crash("paris", T + 5, T + 5.2, keep_log=False),
    )
    assert_transparent(run)


# --- what it costs


def test_one_site_without_replicas_sends_nothing_and_takes_no_time() -> None:
    q = ab.Query("plain")
    busy = q.source("load", "host string, load double").where("load > 0.5")
    q.output("busy", busy)
    site = ab.Topology.from_rtt([[0.0]], ["paris"])
    of = ab.full_mesh(
        q.graph, {"load": ("paris",)}, {"filter1": ("paris",)}, [ab.Subscription("app", "busy", "paris")]
    )
    given = {"load": inputs()["load1"]}
    run = ab.simulate(q, given, site, of)
    assert run.outputs["busy"]["delivered"].equals(run.outputs["busy"]["ts"])
    assert run.outputs["busy"].num_rows == ab.ideal(q, given)["busy"].num_rows
    assert run.metrics.links == {}
    assert run.metrics.network_cost == 0


def test_a_branch_within_a_site_does_not_stop_at_the_end_of_its_window() -> None:
    q = ab.Query("plain")
    q.output("all", q.source("load", "host string, load double").where("load >= 0"))
    site = ab.Topology.from_rtt([[0.0]], ["paris"])
    of = ab.full_mesh(
        q.graph, {"load": ("paris",)}, {"filter1": ("paris",)}, [ab.Subscription("app", "all", "paris")]
    )
    run = ab.simulate(q, {"load": inputs()["load1"]}, site, of, settings=ab.Settings(branch_window=20))
    assert run.complete
    assert run.outputs["all"]["delivered"].equals(run.outputs["all"]["ts"])


def test_memory_and_disk_stay_bounded() -> None:
    """Filters forget what punctuation has passed, logs what nobody needs, however long the run."""
    given = inputs(48)
    run = ab.simulate(query(), given, SITES, plan(), sample_every=4.0)
    assert run.complete
    assert all(use.live == 0 for use in run.metrics.filters if use.at in run.deliveries)
    begin = int(T * SECOND)
    early = [s for s in run.metrics.samples if 8 * SECOND <= s.time - begin < 20 * SECOND]
    late = [s for s in run.metrics.samples if 32 * SECOND <= s.time - begin < 46 * SECOND]
    for size in ("filtered", "records", "bytes"):
        most = [max(getattr(sample, size) for sample in samples) for samples in (early, late)]
        assert 0 < most[1] < 1.5 * most[0], f"{size} grows: {most}"


def test_a_filter_counts_every_delivery_of_every_branch() -> None:
    run = simulate(ab.Redeliver("paris", "ohio", T + 8, 50))
    for use in run.metrics.filters:
        assert [sum(ranks) for ranks in use.ranks] == list(use.received)


# --- what cannot be made good is said


def test_a_gap_that_no_replica_can_fill_is_reported_with_its_range() -> None:
    """One replica, and what it computes from is trimmed: beyond retention the loss is reported as it is."""
    sites = tuple(msgspec.structs.replace(site, retention=2 * SECOND) for site in SITES.sites)
    brief = ab.Topology(sites, SITES.links)
    cut = [f for name in NAMES[:3] for f in both(ab.Cut, "sydney", name, T + 4, T + 12)]
    of = plan(
        entries=dict.fromkeys(ENTRIES, ("ohio", "tokyo")), replicas=dict.fromkeys(REPLICAS, ("sydney",))
    )
    run = ab.simulate(query(), inputs(), brief, of, cut)
    assert "Trimmed" in kinds(run)
    assert "Gap" in kinds(run)
    gaps = [e for _, e in run.events if type(e).__name__ == "Gap" and e.at == "pairs@paris"]
    names = [name for name in ideal()["pairs"].column_names if name != "ts"]
    got = rows(run.outputs["pairs"], names)
    for row in ideal()["pairs"].to_pylist():
        if tuple(row[name] for name in names) not in got:
            ts = int(row["ts"].timestamp() * SECOND)
            assert any(gap.after < ts <= gap.until for gap in gaps), (
                f"{row} is missing, and no gap was reported"
            )
    assert len(got) == len(set(got))


def test_retention_long_enough_loses_nothing() -> None:
    cut = [f for name in NAMES[:3] for f in both(ab.Cut, "sydney", name, T + 4, T + 12)]
    of = plan(
        entries=dict.fromkeys(ENTRIES, ("ohio", "tokyo")), replicas=dict.fromkeys(REPLICAS, ("sydney",))
    )
    run = ab.simulate(query(), inputs(), SITES, of, cut)
    assert_transparent(run)
    assert not kinds(run) & {"Gap", "Trimmed"}


def test_replicas_that_disagree_are_reported_with_stream_and_range(monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[int] = []
    original = ArrowEngine._yield

    def lose_one(self: ArrowEngine, node: Any, out: Batch) -> None:
        if self.at == "paris" and node.name == "pairs" and not lost:
            lost.append(int(timestamps(out)[0]))
            out = out.slice(1)
        if out.num_rows:
            original(self, node, out)

    monkeypatch.setattr(ArrowEngine, "_yield", lose_one)
    run = simulate()
    events = [event for _, event in run.events if isinstance(event, Disagreement)]
    assert kinds(run) == {"Disagreement"}
    assert {event.at for event in events} >= {"pairs@paris"}
    assert len(set(events)) == len(events), "once for each pair of branches and bucket"
    for event in events:
        assert (event.stream, event.branches) == ("pairs", ("paris", "sydney"))
        assert event.after < lost[0] <= event.until
    assert run.complete
    assert len(run.outputs["pairs"]) == len(ideal()["pairs"]), "one replica has it: it arrives"
