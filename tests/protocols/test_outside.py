"""A fragment whose engine is a process of its own: batches in sequence, answered once they are safe."""

import msgspec
import pytest
from pieces import COLUMNS, append, appended, batch, contents, log

from anabranch.graph import Aggregate, Filter, Graph, Operator, Output, Source
from anabranch.protocols.effects import Answer, Effect, EngineInput, EngineStart, StartEngine
from anabranch.protocols.egress import Egress
from anabranch.protocols.outside import Checkpoint, Computed, OutsideFragment, misfit
from anabranch.protocols.records import Record, Writer
from anabranch.protocols.roles import FragmentRole, spans
from anabranch.protocols.settings import Settings
from anabranch.streams.punctuation import BEGINNING, END

WINDOW = Aggregate("o", "s", 10, 5, (), (("n", "count(*)"),))


class Site:
    """A fragment over an ingress log that exists already, and its egress log."""

    def __init__(self, operator: Operator = WINDOW, out: tuple[Record, ...] = ()) -> None:
        graph = Graph("q", (Source("s", COLUMNS),), (operator,), (Output("out", "o"),))
        role = FragmentRole(("o",), ("s",), ("o",), ("s",))
        self.ingress = Writer("in/s", 1)
        self.began = True
        self.egress = Egress("o", "here", Settings(), 7)
        self.egress.recover(0, out)
        self.egress.serve(("app",))
        self.fragment = OutsideFragment(
            graph,
            role,
            spans(graph, role),
            {"o": self.egress},
            lambda _: self.ingress if self.began else None,
            Settings(),
        )
        self.fragment.recover({"o": out})

    def take(self, *tuples: tuple[int, int], punctuation: int) -> None:
        self.ingress.complete_from = min(self.ingress.complete_from, BEGINNING)
        append(self.ingress, tuples, punctuation)


def computed(
    number: int, *tuples: tuple[int, int], run: str = "r", promise: int = BEGINNING, position: int = 0
) -> Computed:
    rows = {"o": batch(*tuples)} if tuples else {}
    return Computed("o", run, number, rows, {"o": promise}, {"s": position})


def started(effects: list[Effect]) -> EngineStart:
    (effect,) = [effect for effect in effects if isinstance(effect, StartEngine)]
    return effect.start


def answers(effects: list[Effect]) -> list[tuple[str, int, bool]]:
    return [(e.run, e.batch, e.taken) for e in effects if isinstance(e, Answer)]


def test_an_engine_starts_once_its_input_is_complete_from_somewhere() -> None:
    site = Site()
    site.began = False
    assert site.fragment.begin() == []
    site.began = True
    assert site.fragment.begin() == [], "the log has told nothing yet"
    site.take((3, 1), punctuation=5)
    start = started(site.fragment.begin())
    assert start.inputs == {"s": EngineInput(0, BEGINNING, BEGINNING)}
    assert start.complete_from == {"o": BEGINNING}
    assert site.fragment.begin() == []


def test_a_log_that_was_trimmed_says_which_windows_may_be_partial() -> None:
    site = Site()
    site.take((3, 1), punctuation=5)
    site.take((12, 2), punctuation=13)
    site.take((14, 3), punctuation=15)
    site.ingress.trim(12)
    start = started(site.fragment.begin())
    assert start.inputs == {"s": EngineInput(2, 12, BEGINNING)}
    assert start.complete_from == {"o": 22}


def test_what_nobody_wants_is_not_computed() -> None:
    graph = Graph("q", (Source("s", COLUMNS),), (WINDOW,), ())
    role = FragmentRole(("o",), ("s",), (), ("s",))
    writer = Writer("in/s", 1)
    writer.complete_from = BEGINNING
    fragment = OutsideFragment(graph, role, spans(graph, role), {}, lambda _: writer, Settings())
    assert fragment.begin() == []
    assert fragment.unread("s") == END


@pytest.fixture
def site() -> Site:
    site = Site()
    site.take((3, 1), punctuation=5)
    site.fragment.begin()
    site.fragment.on_run("r")
    return site


def test_a_batch_is_answered_when_it_is_durable_and_not_before(site: Site) -> None:
    effects = site.fragment.on_computed(computed(0, (10, 1), promise=10))
    (one,) = appended(effects)
    assert contents(one.record.rows) == [(10, 1)]
    assert one.record.punctuation == 10
    assert answers(effects) == []
    assert site.fragment.on_computed(computed(0, (10, 1), promise=10)) == [], "it is on its way"
    assert answers(site.fragment.on_durable("o", one.record)) == [("r", 0, True)]


def test_a_repeated_batch_is_answered_and_appended_nothing(site: Site) -> None:
    (one,) = appended(site.fragment.on_computed(computed(0, (10, 1))))
    site.fragment.on_durable("o", one.record)
    again = site.fragment.on_computed(computed(0, (10, 1)))
    assert answers(again) == [("r", 0, True)]
    assert appended(again) == []


def test_a_batch_behind_a_hole_and_one_of_another_run_are_refused(site: Site) -> None:
    assert site.fragment.on_computed(computed(1)) == [Answer("o", "r", 1, taken=False)]
    assert site.fragment.on_computed(computed(0, run="old")) == [Answer("o", "old", 0, taken=False)]


def test_nothing_is_trimmed_that_was_not_read(site: Site) -> None:
    assert site.fragment.unread("s") == 0
    site.fragment.on_computed(computed(0, position=1))
    assert site.fragment.unread("s") == 1
    site.take(punctuation=20)
    site.take(punctuation=30)
    assert [trim.keep for trim in site.ingress.trim(100, site.fragment.unread("s"))] == [1]
    assert site.ingress.index.first == 1


def test_a_run_goes_on_behind_the_batches_that_the_egress_log_holds() -> None:
    before = Site()
    before.take((3, 1), punctuation=5)
    before.fragment.begin()
    before.fragment.on_run("r")
    records = []
    for number in range(3):
        records += [
            a.record for a in appended(before.fragment.on_computed(computed(number, (number, number))))
        ]
    site = Site(out=tuple(records))
    site.take((3, 1), punctuation=5)
    assert started(site.fragment.begin()).taken == {"o": ("r", 2)}
    site.fragment.on_run("r")
    assert answers(site.fragment.on_computed(computed(2, (2, 2)))) == [("r", 2, True)]
    assert len(appended(site.fragment.on_computed(computed(3, (4, 4))))) == 1
    site.fragment.on_run("another")
    repeated = site.fragment.on_computed(computed(0, (0, 0), (5, 5), run="another"))
    assert [contents(a.record.rows) for a in appended(repeated)] == [[(5, 5)]], "what the log holds"


START = EngineStart("o", ("o",), ("o",), {"s": EngineInput(2, 12, BEGINNING)}, {"o": 22}, {"o": ("r", 4)})
CHECKPOINT = Checkpoint("r", ("o",), ("o",), {"s": BEGINNING}, 4, {"s": (5, 1)}, {"s": (7, 1)})


def generation_before(stream: str, position: int) -> int | None:
    return 1 if 2 <= position <= 8 else None


@pytest.mark.parametrize(
    ("checkpoint", "why"),
    [
        ({}, None),
        ({"planned": None}, None),
        ({"operators": ("p",)}, "another fragment"),
        ({"positions": {"s": (1, 1)}}, "not the one"),
        ({"positions": {"s": (5, 9)}}, "not the one"),
        ({"planned": {"s": (9, 1)}}, "not the one"),
        ({"planned": {"s": (7, 2)}}, "not the one"),
        ({"batch": 5}, "lacks"),
        ({"run": "q"}, "lacks"),
        ({"run": "q", "batch": -1}, None),
    ],
)
def test_a_run_is_resumed_only_where_the_logs_are_what_it_knows(checkpoint: dict, why: str | None) -> None:
    found = misfit(START, msgspec.structs.replace(CHECKPOINT, **checkpoint), generation_before)
    assert (found is None) if why is None else (found is not None and why in found)


def test_a_gap_ends_a_run() -> None:
    start = msgspec.structs.replace(START, inputs={"s": EngineInput(2, 12, 9)})
    assert "gap" in str(misfit(start, CHECKPOINT, generation_before))
    whole = msgspec.structs.replace(CHECKPOINT, complete_from={"s": 9})
    assert misfit(start, whole, generation_before) is None


def test_a_filter_promises_what_its_input_does() -> None:
    site = Site(Filter("o", "s", "v > 0"), out=log(([(1, 1)], 1)))
    site.take((3, 1), punctuation=5)
    site.fragment.begin()
    site.fragment.on_run("r")
    (one,) = appended(site.fragment.on_computed(computed(0, (1, 1), (3, 1), promise=5)))
    assert contents(one.record.rows) == [(3, 1)]
    assert one.record.punctuation == 5
