"""Runs that once went wrong, or easily could: small, and each about one rule."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.sim.faults import Fault

T = 1000
SECOND = 1_000_000


def sites(count: int, delay_ms: float = 50) -> ab.Topology:
    names = "abcdef"[:count]
    return ab.Topology.from_rtt(
        [[2 * delay_ms * (i != j) for j in range(count)] for i in range(count)], list(names)
    )


def table(times: Sequence[float]) -> pa.Table:
    ts = pa.array([round((T + t) * SECOND) for t in times], pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.table({"ts": ts, "g": [f"g{i % 3}" for i in range(len(times))], "v": range(len(times))})


STEADY = [i / 10 for i in range(250)]


class Case:
    """One source, one operator, one application at the last site."""

    def __init__(self, count: int = 3, window: str | None = None, timestamps: Any = "source") -> None:
        query = ab.Query("q")
        source = query.source("s", "g string, v bigint", timestamps=timestamps)
        if window is None:
            query.output("o", source.where("v >= 0", name="f"))
        else:
            query.output("o", source.aggregate(window, by="g", n="count(*)", t="sum(v)", name="f"))
        self.query = query
        self.sites = sites(count)
        self.application = ab.Subscription("app", "o", self.sites.names[-1])

    def plan(self, entries: str, replicas: str, **options: Any) -> ab.Plan:
        graph = self.query.graph
        return ab.full_mesh(
            graph, {"s": tuple(entries)}, {"f": tuple(replicas)}, [self.application], **options
        )

    def run(self, plan: ab.Plan, *faults: Fault, times: Sequence[float] = STEADY, **options: Any) -> ab.Run:
        self.inputs = {"s": table(times)}
        return ab.simulate(self.query, self.inputs, self.sites, plan, faults, **options)

    def lost(self, run: ab.Run) -> list[tuple[Any, ...]]:
        names = ("ts", "_hi", "_lo")
        wanted, got = (
            list(zip(*(t[name].to_pylist() for name in names), strict=True))
            for t in (ab.ideal(self.query, self.inputs)["o"], run.outputs["o"])
        )
        assert len(got) == len(set(got)), "a tuple came twice"
        assert set(got) <= set(wanted), "a tuple came that is not in the ideal run"
        return sorted(set(wanted) - set(got))


def delays(run: ab.Run, since: float = 0.0, until: float = 1e9) -> list[float]:
    """From its timestamp to its delivery, in seconds, of each tuple between ``since`` and ``until``."""
    ts, delivered = (run.outputs["o"][name].cast(pa.int64()).to_pylist() for name in ("ts", "delivered"))
    pairs = [(t / SECOND - T, d / SECOND - T) for t, d in zip(ts, delivered, strict=True)]
    return [round(d - t, 6) for t, d in pairs if since <= t < until]


def test_a_tuple_takes_the_fastest_path() -> None:
    case = Case()
    run = case.run(case.plan("a", "ab"))
    assert case.lost(run) == []
    assert set(delays(run)) == {0.05}


def test_with_a_mirror_a_peer_that_holds_a_tuple_shows_it_first() -> None:
    case = Case()
    run = case.run(case.plan("ab", "b"))
    assert set(delays(run)) == {0.1}, "from a to b and on, without a way back"


@pytest.mark.parametrize("keep_log", [True, False])
@pytest.mark.parametrize("site", ["a", "b"])
def test_after_an_entry_point_comes_back_tuples_are_as_fast_as_before(site: str, keep_log: bool) -> None:
    """A peer that has missed something catches up with all of it, not one retry behind for ever."""
    case = Case(4)
    run = case.run(case.plan("ab", "c"), ab.Crash(site, T + 10, T + 10.5, keep_log))
    assert case.lost(run) == []
    assert max(delays(run, until=9)) <= 0.15
    assert max(delays(run, since=17)) <= 0.15
    late = [event for time, event in run.events if time > (T + 17) * SECOND]
    assert late == []


def test_the_tail_that_an_entry_point_loses_it_gets_from_its_peer() -> None:
    for tail in (1, 4, 20, 500):
        case = Case(4)
        run = case.run(
            case.plan("ab", "c"), ab.Crash("b", T + 10, T + 10.5, lose_tail=tail), ab.Crash("a", T + 18)
        )
        assert case.lost(run) == []
        assert run.complete


def test_a_consumer_behind_a_cut_goes_on_soon_after_it_heals() -> None:
    case = Case()
    run = case.run(case.plan("a", "b"), *(ab.Cut(x, y, T + 8, T + 16) for x, y in ("ab", "ba")))
    assert case.lost(run) == []
    longest = ab.Settings().branch_timeout_most / SECOND
    assert max(delays(run)) <= 8 + longest + 1


def test_what_a_consumer_needs_is_kept_where_its_site_is_an_entry_point_too() -> None:
    """Site b is a peer of a, which needs little, and a consumer of a's log, which needs a whole window."""
    case = Case(3, window="10 seconds")
    whole = case.plan("ab", "b")
    branches = tuple(x for x in whole.branches if (x.stream, x.source) != ("s", "b"))
    lean = ab.Plan(1, "", whole.entries, whole.replicas, whole.subscriptions, branches)
    run = case.run(lean, ab.Crash("b", T + 15.5, T + 16, keep_log=False))
    assert case.lost(run) == []


def test_a_slow_consumer_is_sent_no_more_than_a_window_ahead_and_gets_all() -> None:
    case = Case()
    run = case.run(case.plan("a", "b"), settings=ab.Settings(branch_window=16))
    assert case.lost(run) == []
    held = case.run(case.plan("a", "b"), settings=ab.Settings(branch_window=8))
    assert case.lost(held) == []
    assert max(delays(held)) > max(delays(run))


@pytest.mark.parametrize("pause", [0.0001, 0.1])
def test_a_stream_dropped_and_begun_again_is_not_taken_for_the_old_one(pause: float) -> None:
    """Who hears only of the third plan must not go on in the new log where it stood in the old."""
    case = Case()
    moves = [
        ab.Replan("b", T + 4.5, case.plan("a", "c", epoch=2)),
        ab.Replan("b", T + 4.5 + pause, case.plan("a", "b", epoch=3)),
    ]
    times = [*range(5), *(4.6 + i / 100 for i in range(600))]
    assert case.lost(case.run(case.plan("a", "b"), *moves, times=times)) == []


def test_an_entry_point_that_leaves_the_plan_turns_its_producer_away_aloud() -> None:
    case = Case()
    run = case.run(case.plan("ab", "c"), ab.Replan("b", T + 10, case.plan("b", "c", epoch=2)))
    assert case.lost(run) == []
    assert {type(event).__name__ for _, event in run.events} == {"Rejected"}
    assert max(delays(run, since=17)) <= 0.2


def test_sites_that_stay_down_stall_the_run_which_says_where() -> None:
    case = Case()
    run = case.run(case.plan("a", "b"), ab.Crash("b", T + 10), patience=5.0)
    assert not run.complete
    assert list(run.stalled) == ["app"]
    stands = run.stalled["app"] / SECOND - T
    assert 8 < stands <= 10
    assert all(row[0].timestamp() > T + stands for row in case.lost(run)), "up to there nothing is missing"


def test_clocks_of_sites_that_give_no_timestamps_do_not_matter() -> None:
    case = Case(3, window="2 seconds")
    plain = case.run(case.plan("a", "bc"))
    for by in (-3600.0, -30.0, 30.0, 3600.0):
        run = case.run(case.plan("a", "bc"), ab.ClockOffset("b", by, T + 5), ab.ClockOffset("c", -by, T + 9))
        assert case.lost(run) == []
        assert delays(run) == delays(plain)


def test_without_mirrors_a_crash_holds_tuples_up_but_loses_none_whose_log_comes_back() -> None:
    case = Case()
    run = case.run(case.plan("ab", "c", mirrors=0), ab.Crash("a", T + 10, T + 14))
    assert case.lost(run) == []


def test_without_mirrors_a_lost_log_is_a_gap_that_is_reported() -> None:
    case = Case()
    run = case.run(
        case.plan("ab", "c", mirrors=0),
        *(ab.Cut(x, y, T + 5, T + 10) for x, y in ("ab", "ba", "ac")),
        ab.Crash("a", T + 9.9, T + 12, keep_log=False),
        settings=ab.Settings(gap_patience=20 * SECOND),
    )
    lost = case.lost(run)
    gaps = [e for _, e in run.events if type(e).__name__ == "Gap" and e.at == "app"]
    assert lost, "what only a had is gone"
    assert all(any(g.after < row[0].timestamp() * SECOND <= g.until for g in gaps) for row in lost)
    assert run.complete


def test_a_count_that_lost_its_log_begins_from_a_peers_snapshot() -> None:
    query = ab.Query("q")
    query.output(
        "o", query.source("s", "g string, v bigint").count_windows(7, every=3, by="g", t="sum(v)", name="f")
    )
    case = Case(4)
    case.query = query
    run = case.run(
        case.plan("a", "bc"),
        ab.Crash("b", T + 8, T + 9, keep_log=False),
        ab.Crash("c", T + 15, T + 16, keep_log=False),
    )
    assert case.lost(run) == []
    assert run.complete


@pytest.mark.parametrize("mirrors", [1, 2])
def test_an_origin_killed_for_good_loses_nothing_that_it_acknowledged_or_not(mirrors: int) -> None:
    case = Case(4)
    run = case.run(case.plan("abc", "d", mirrors=mirrors), ab.Crash("a", T + 10.02))
    assert case.lost(run) == []
    assert run.complete


@pytest.mark.parametrize(
    "faults",
    [
        [ab.Crash("a", T + 10.02, T + 14)],
        [ab.Crash("b", T + 10.02, T + 14)],
        [ab.Cut("a", "b", T + 5, T + 16), ab.Cut("b", "a", T + 5, T + 16)],
        [ab.Cut("a", "b", T + 5, T + 16)],
        [ab.Stall("b", "a", T + 5, T + 16)],
    ],
    ids=["origin crashes", "peer crashes", "parted", "one way", "stalled"],
)
def test_a_clock_stamps_each_tuple_once_whatever_parts_its_entry_points(faults: list[Fault]) -> None:
    case = Case(4, timestamps="entry")
    for entries in ("ab", "abc"):
        run = case.run(case.plan(entries, "d"), *faults)
        assert run.complete
        assert run.outputs["o"]["v"].to_pylist() != []
        assert sorted(run.outputs["o"]["v"].to_pylist()) == list(range(len(STEADY)))
        assert max(delays(run, since=24)) <= 0.3
