"""The judge: a true run passes, and every way of being wrong is told by its name."""

import copy
from collections.abc import Callable

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from anabranch.fuzz.case import Case
from anabranch.fuzz.judge import judge
from anabranch.fuzz.liveness import must_end
from anabranch.graph import Column, CountAggregate, Custom, Filter, Graph, Output, Source
from anabranch.plan import Subscription, full_mesh
from anabranch.protocols.events import Degraded, Disagreement, Gap, Late, Poisoned, Waiting
from anabranch.sim.faults import Crash
from anabranch.sim.run import Run, simulate
from anabranch.streams.batch import TIMESTAMP
from anabranch.topology import Site, Topology, constant

APP = "busy@b#1"
SECOND = 1_000_000


def case_of(klass: str = "calm") -> Case:
    source = Source("load", (Column("host", "string"), Column("load", "double")))
    graph = Graph(
        "small",
        (source,),
        (Filter("high", "load", "load >= 0"),),
        (Output("busy", "high", "timestamp"),),
    )
    links = tuple(constant(a, b, 10_000) for a, b in (("a", "b"), ("b", "a")))
    plan = full_mesh(graph, {"load": ("a", "b")}, {"high": ("a", "b")}, (Subscription(APP, "busy", "b"),))
    rows = pa.table(
        {
            "ts": pa.array([SECOND, 2 * SECOND, 2 * SECOND, 4 * SECOND], pa.int64()).view(TIMESTAMP),
            "host": ["x", "y", "z", None],
            "load": [0.5, 0.0, float("nan"), 0.25],
        }
    )
    lifeline = {"load": "a", "high": "a"}
    return Case(klass, graph, {"load": rows}, Topology((Site("a"), Site("b")), links), plan, lifeline)


@pytest.fixture(scope="module")
def true_run() -> Run:
    case = case_of()
    return simulate(case.graph, case.inputs, case.topology, case.plan)


def changed(run: Run, change: Callable[[pa.Table], pa.Table]) -> Run:
    wrong = copy.copy(run)
    wrong.deliveries = {APP: change(run.deliveries[APP])}
    wrong.metrics = msgspec.structs.replace(run.metrics, filters=())
    return wrong


def told(run: Run, *events: object) -> Run:
    wrong = copy.copy(run)
    wrong.events = tuple((SECOND, event) for event in events)
    return wrong


def put(column: str, row: int, value: object) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        values = table[column].to_pylist()
        values[row] = value
        at = table.column_names.index(column)
        return table.set_column(at, column, pa.array(values, table[column].type))

    return change


def kinds(klass: str, run: Run) -> list[str]:
    return [finding.kind for finding in judge(case_of(klass), run)]


@pytest.mark.parametrize("klass", ["calm", "live", "outage", "loss"])
def test_a_true_run_passes(true_run: Run, klass: str) -> None:
    assert true_run.deliveries[APP].num_rows == 4
    assert kinds(klass, true_run) == []


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda table: table.slice(1), "missing"),
        (lambda table: table.slice(0, 0), "missing"),
        (lambda table: pa.concat_tables([table, table.slice(3)]), "duplicate"),
        (put("host", 0, "w"), "altered"),
        (put("host", 0, None), "altered"),
        (put("load", 1, -0.0), "altered"),
        (put("load", 2, None), "altered"),
        (put("ts", 0, pa.scalar(SECOND - 1, pa.int64()).cast(TIMESTAMP)), "altered"),
        (put("_lo", 0, 7), "extra"),
        (lambda table: table.take([0, 2, 1, 3]), "misordered"),
        (lambda table: table.take([3, 0, 1, 2]), "misordered"),
    ],
)
def test_a_wrong_stream_is_told_by_its_kind(
    true_run: Run, change: Callable[[pa.Table], pa.Table], kind: str
) -> None:
    wrong = changed(true_run, change)
    assert kind in kinds("outage", wrong)
    sentence = next(finding.sentence for finding in judge(case_of("live"), wrong) if finding.kind == kind)
    assert APP in sentence
    assert "ts=" in sentence


def test_the_last_bit_of_a_double_counts(true_run: Run) -> None:
    assert kinds("live", changed(true_run, put("load", 0, 0.5 + 2**-53))) == ["altered"]


def test_delivery_times_must_be_possible(true_run: Run) -> None:
    before = changed(true_run, put("delivered", 0, pa.scalar(SECOND - 1, pa.int64()).cast(TIMESTAMP)))
    assert kinds("live", before) == ["time"]
    back = changed(true_run, put("delivered", 2, pa.scalar(2 * SECOND, pa.int64()).cast(TIMESTAMP)))
    assert kinds("live", back) == ["time"]


def test_a_loss_must_lie_in_a_reported_gap(true_run: Run) -> None:
    cut = changed(true_run, lambda table: table.filter(pc.not_equal(table["host"], "x")))
    assert "missing" in kinds("loss", cut)
    assert kinds("loss", told(cut, Gap("high", APP, 0, 4 * SECOND))) == []
    assert "missing" in kinds("loss", told(cut, Gap("high", APP, SECOND, 4 * SECOND)))
    assert "missing" in kinds("loss", told(cut, Gap("high", "a", 0, 4 * SECOND)))
    assert "missing" in kinds("loss", told(cut, Gap("load", APP, 0, 4 * SECOND)))


def test_a_stream_may_stand_still_only_if_the_run_says_so(true_run: Run) -> None:
    still = changed(true_run, lambda table: table.slice(0, 1))
    still.stalled = {APP: SECOND}
    assert kinds("loss", still) == ["incomplete"]
    assert kinds("live", still) == ["missing", "incomplete"]
    still.stalled = {APP: 2 * SECOND}
    assert kinds("loss", still) == ["missing", "incomplete"]


def test_an_alarm_needs_a_reason(true_run: Run) -> None:
    gap = Gap("high", APP, 0, SECOND)
    assert kinds("calm", told(true_run, gap)) == ["idle gap", "event"]
    assert kinds("live", told(true_run, gap)) == ["idle gap"]
    assert kinds("calm", told(true_run, Degraded("load", "a", "load", 1, ("b",)))) == ["event"]
    assert kinds("live", told(true_run, Degraded("load", "a", "load", 1, ("b",)))) == []


@pytest.mark.parametrize("klass", ["calm", "live", "outage", "loss"])
def test_replicas_that_disagree_are_a_finding_whatever_fails(true_run: Run, klass: str) -> None:
    assert "disagreement" in kinds(klass, told(true_run, Disagreement("high", APP, ("a", "b"), 0, SECOND)))


def test_late_tuples_are_counted(true_run: Run) -> None:
    late = Late("load", "a", 1, SECOND, SECOND)
    assert kinds("calm", told(true_run, late)) == ["late"]
    case = case_of("live")
    arrival = pa.array([3 * SECOND, 3 * SECOND, 3 * SECOND, 4 * SECOND], pa.int64()).view(TIMESTAMP)
    case = msgspec.structs.replace(
        case, inputs={"load": case.inputs["load"].append_column("arrival", arrival)}
    )
    run = simulate(case.graph, case.inputs, case.topology, case.plan)
    assert judge(case, run) == []
    assert run.deliveries[APP].num_rows == 1
    assert [finding.kind for finding in judge(case, told(run, late))] == ["late"]


def test_ranks_must_account_for_every_delivery(true_run: Run) -> None:
    wrong = copy.copy(true_run)
    use = next(use for use in wrong.metrics.filters if use.at == APP)
    more = msgspec.structs.replace(use, received=(use.received[0] + 1, *use.received[1:]))
    wrong.metrics = msgspec.structs.replace(wrong.metrics, filters=(more,))
    assert kinds("live", wrong) == ["ranks"]
    drifted = tuple((0, ranks[0] + ranks[1], *ranks[2:]) for ranks in use.ranks)
    wrong.metrics = msgspec.structs.replace(
        wrong.metrics, filters=(msgspec.structs.replace(use, ranks=drifted),)
    )
    assert kinds("live", wrong) == ["ranks"], "all are counted, but none as the first"
    full = msgspec.structs.replace(use, live=1)
    wrong.metrics = msgspec.structs.replace(wrong.metrics, filters=(full,))
    assert kinds("live", wrong) == ["memory"]


def test_poison_is_reported_as_in_the_ideal_run() -> None:
    case = case_of("calm")
    column = (Column("part", "bigint"), Column("odd", "boolean"))
    fussy = Custom("high", "load", "anabranch.fuzz.functions:fussy", column)
    inputs = {"load": case.inputs["load"].set_column(0, "ts", pa.array([5000, 6000, 11000, 99000]))}
    graph = msgspec.structs.replace(case.graph, operators=(fussy,))
    case = msgspec.structs.replace(case, graph=graph, inputs=inputs)
    run = simulate(case.graph, case.inputs, case.topology, case.plan)
    assert judge(case, run) == []
    poison = [event for _, event in run.events if isinstance(event, Poisoned)]
    assert sorted(event.timestamp for event in poison) == [5000, 5000, 11000, 11000], "by both replicas"
    live = msgspec.structs.replace(case, klass="live")
    silent = told(run, poison[0])
    strange = told(run, *poison, msgspec.structs.replace(poison[0], timestamp=6000))
    for of, wrong in ((case, silent), (live, silent), (case, strange), (live, strange)):
        assert [finding.kind for finding in judge(of, wrong)] == ["poison"]
    assert [finding.kind for finding in judge(case, told(run, *poison, poison[0]))] == ["poison"]
    assert judge(live, told(run, *poison, poison[0])) == [], "a replica that computes again says it again"


def test_beyond_retention_a_stream_stands_still_only_for_a_reason(true_run: Run) -> None:
    still = changed(true_run, lambda table: table.slice(0, 1))
    still.stalled = {APP: SECOND}
    case = case_of("loss")
    assert [finding.kind for finding in judge(case, still)] == ["incomplete"]
    dead = tuple(Crash(site, 1.0) for site in "ab")
    assert judge(msgspec.structs.replace(case, faults=dead[:1]), still) != []
    assert judge(msgspec.structs.replace(case, faults=dead), still) == []
    counts = CountAggregate("high", "load", 1, 1, (), (("n", "count(*)"),))
    counting = msgspec.structs.replace(case, graph=msgspec.structs.replace(case.graph, operators=(counts,)))
    waiting = told(still, Waiting("high", "a", SECOND), Waiting("high", "b", SECOND))
    assert APP in must_end(counting, still)
    assert APP in must_end(counting, told(still, Waiting("high", "a", SECOND))), "b may tell a"
    assert APP not in must_end(counting, waiting), "nobody has the history"
