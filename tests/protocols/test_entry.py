"""An entry point: sequences, timestamps, late tuples, mirrors, and what happens when one is missing."""

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pieces import COLUMNS, SECOND, appended, batch, contents, reported, sent

from anabranch.graph import Source
from anabranch.protocols.effects import Effect, ReadLog, Send, SetTimer
from anabranch.protocols.egress import Egress
from anabranch.protocols.entry import EntryPoint
from anabranch.protocols.events import Degraded, Gap, Late
from anabranch.protocols.identity import Identify
from anabranch.protocols.messages import (
    Accepted,
    Ask,
    CatchUp,
    CaughtUp,
    Mirror,
    Mirrored,
    Resend,
    Submit,
)
from anabranch.protocols.records import HEADER, Record, Sequence
from anabranch.protocols.settings import Settings
from anabranch.streams.batch import TIMESTAMP, Batch
from anabranch.streams.punctuation import BEGINNING, END

SOURCE = Source("s", COLUMNS)
CLOCKED = Source("s", COLUMNS, "entry")
NOTHING: tuple[int, tuple[Record, ...]] = (0, ())


class Point:
    """An entry point and its log: what it appends is durable at once."""

    def __init__(
        self, name: str = "a", peers: tuple[str, ...] = (), mirrors: int = 1, source: Source = SOURCE
    ) -> None:
        self.records: list[Record] = []
        self.held: list[Record] = []
        self.make = (name, peers, mirrors, source)
        self.restart(0)

    def restart(self, now: int) -> list[Effect]:
        name, peers, mirrors, source = self.make
        egress = Egress("s", name, Settings(), 1)
        self.entry = EntryPoint(source, Identify(source), egress, (), Settings(), 1)
        self.entry.set_peers(peers, mirrors)
        return self.durable(self.entry.recover(now, (0, tuple(self.records)), (0, tuple(self.held)), NOTHING))

    def durable(self, effects: list[Effect]) -> list[Effect]:
        done: list[Effect] = []
        for effect in effects:
            done.append(effect)
            for append in appended([effect]):
                if append.stream == "out/s":
                    self.records.append(append.record)
                    done += self.durable(self.entry.on_durable(append.record))
                elif append.stream == "held/s":
                    self.held.append(append.record)
                    done += self.durable(self.entry.on_held(append.record))
        return done

    def submit(self, first: int, *timestamps: int, now: int = 0, **more: Any) -> list[Effect]:
        return self.durable(self.entry.on_submit(now, "p", submission(first, *timestamps, **more)))

    def shown(self) -> list[int]:
        return [ts for record in self.records for ts, _ in contents(record.rows)]

    def answer(self, peer: str, ask: CatchUp, trimmed: int = 0) -> list[Effect]:
        """What it tells a peer when all but the first ``trimmed`` records are still in the log."""
        (read,) = self.entry.on_catch_up(peer, ask)
        assert isinstance(read, ReadLog)
        return self.entry.answer_catch_up(*read.tag[2:], tuple(self.records[trimmed:]))

    def tick(self, now: int) -> list[Effect]:
        return self.durable(self.entry.on_tick(now))


def submission(
    first: int,
    *timestamps: int,
    promise: int = BEGINNING,
    safe: int = 0,
    high: int = BEGINNING,
    attempt: int = 0,
    clocked: bool = False,
) -> Submit:
    rows = None
    if timestamps:
        v = pa.array(range(first, first + len(timestamps)), pa.int64())
        ts = pa.array(timestamps, pa.int64()).view(TIMESTAMP)
        rows = pa.RecordBatch.from_pydict({"v": v} if clocked else {"ts": ts, "v": v})
    return Submit("s", "p", first, rows, promise, high, (safe, BEGINNING), attempt)


SEQUENCE = Sequence("p", 0, 1, BEGINNING, 0)


def submitted(*timestamps: int) -> Batch:
    """What an entry point makes of ``timestamps``, ids counted from 0."""
    return batch(*((ts, number) for number, ts in enumerate(timestamps)))


def mirrored(until: int, promise: int = BEGINNING) -> Mirrored:
    return Mirrored("s", "p", until, promise, 0)


def safe(effects: list[Effect]) -> int:
    """How many tuples the producer has been told are safe."""
    return max((message.until for message in sent(effects, Accepted)), default=0)


# --- sequences


def test_tuples_are_shown_and_acknowledged_once_they_are_in_the_log() -> None:
    point = Point()
    effects = point.submit(0, 10, 20)
    assert point.shown() == [10, 20]
    assert safe(effects) == 2


def test_what_was_submitted_before_is_not_taken_again() -> None:
    point = Point()
    point.submit(0, 10, 20)
    point.submit(0, 10, 20, 30)
    point.submit(1, 20)
    assert point.shown() == [10, 20, 30]


def test_a_tuple_that_did_not_arrive_is_asked_for_and_none_behind_it_is_taken() -> None:
    point = Point()
    point.submit(0, 10)
    assert sent(point.submit(2, 30), Resend) == [Resend("s", "p", 1)]
    assert point.shown() == [10]


def test_a_submission_that_the_producer_has_turned_away_from_is_ignored() -> None:
    point = Point()
    point.submit(0, 10, attempt=2)
    assert point.submit(1, 20, attempt=1) == []


def test_ids_do_not_depend_on_the_entry_point_nor_on_how_tuples_are_grouped() -> None:
    one, other = Point("a"), Point("b")
    one.submit(0, 10, 20, 30)
    other.submit(0, 10)
    other.submit(1, 20, 30)
    ids = [[row for record in point.records for row in contents(record.rows)] for point in (one, other)]
    assert ids[0] == ids[1]


def test_a_promise_is_honoured_only_where_all_tuples_before_it_are() -> None:
    point = Point()
    point.submit(0, 10)
    point.submit(2, promise=50)
    assert point.records[-1].punctuation == BEGINNING
    point.submit(1, 20)
    point.submit(2, promise=50)
    assert point.records[-1].punctuation == 50


# --- late tuples


def test_late_is_decided_by_the_sequence_and_reported() -> None:
    point = Point()
    point.submit(0, 100, promise=50)
    effects = point.submit(1, 40, 60, 50, promise=50)
    assert reported(effects) == [Late("s", "a", 2, 40, 50)]
    assert point.shown() == [100, 60]
    (late,) = [append for append in appended(effects) if append.stream == "late/s"]
    assert [ts for ts, _ in contents(late.record.rows)] == [40, 50]
    assert safe(effects) == 4, "the producer need not keep them"


def test_late_tuples_keep_their_place_in_the_sequence_at_every_entry_point() -> None:
    a, b = Point("a", ("b",)), Point("b", ("a",))
    effects = [*a.submit(0, 100, promise=50), *a.submit(1, 40, 60, promise=50)]
    for mirror in sent(effects, Mirror):
        b.durable(b.entry.on_mirror(0, "a", mirror))
    b.submit(3, 70, attempt=1)
    b.durable(b.entry.on_mirrored(0, "a", mirrored(4, 50)))
    assert b.shown() == [100, 60, 70]


def test_a_second_producer_is_not_silenced_by_the_promises_of_the_first() -> None:
    """Guarantee 4: what comes behind the source's punctuation is late, and counted."""
    point = Point()
    point.submit(0, 100, promise=90)
    stranger = Submit("s", "q", 0, submission(0, 50).rows, BEGINNING, BEGINNING, (0, BEGINNING), 0)
    effects = point.durable(point.entry.on_submit(0, "q", stranger))
    assert reported(effects) == [Late("s", "a", 1, 50, 50)]


# --- clocks


def test_a_clock_stamps_after_all_it_has_promised_even_when_it_goes_back() -> None:
    point = Point(source=CLOCKED)
    point.submit(0, 0, now=50, clocked=True)
    point.durable(point.entry.on_timer(101))
    point.submit(1, 0, now=70, clocked=True)
    assert point.shown() == [50, 101]
    assert point.records[1].punctuation == 100


def test_a_clock_promises_at_the_interval_and_behind_ends_of_windows() -> None:
    entry = EntryPoint(CLOCKED, Identify(CLOCKED), Egress("s", "a", Settings(), 1), (300_000,), Settings(), 1)
    timers = [e for e in entry.recover(1_000_001, NOTHING, NOTHING, NOTHING) if isinstance(e, SetTimer)]
    assert timers == [SetTimer("entry/s", 200_000)]


def test_a_restarted_clock_does_not_stamp_before_what_its_log_holds() -> None:
    point = Point(source=CLOCKED)
    point.submit(0, 0, now=500, clocked=True)
    point.restart(100)
    point.submit(1, 0, now=100, clocked=True)
    assert point.shown()[1] >= 500


def test_a_clock_promises_nothing_before_its_peers_have_told_what_they_hold() -> None:
    point = Point("a", ("b",), source=CLOCKED)
    point.durable(point.entry.on_caught_up(0, "b", CaughtUp("s", (), (), (), ())))
    point.submit(0, 0, now=10, clocked=True)
    point.durable(point.entry.on_mirrored(0, "b", mirrored(1)))
    point.restart(1000)
    point.submit(1, now=1000, clocked=True)
    assert sent(point.durable(point.entry.on_timer(2000)), Mirror) == []


# --- mirrors


def test_without_mirrors_tuples_are_shown_at_once() -> None:
    point = Point("a", ("b",), mirrors=0)
    assert safe(point.submit(0, 10)) == 1
    assert point.shown() == [10]


def test_with_one_mirror_tuples_are_shown_once_a_peer_holds_them() -> None:
    point = Point("a", ("b", "c"))
    assert [e.to for e in point.submit(0, 10) if isinstance(e, Send)] == ["b", "c"]
    assert point.shown() == []
    effects = point.durable(point.entry.on_mirrored(0, "c", mirrored(1)))
    assert point.shown() == [10]
    assert safe(effects) == 1


def test_a_peer_shows_what_it_holds_and_says_so_when_it_is_durable() -> None:
    a, b = Point("a", ("b",)), Point("b", ("a",))
    (mirror,) = sent(a.submit(0, 10), Mirror)
    effects = b.durable(b.entry.on_mirror(0, "a", mirror))
    assert b.shown() == [10]
    assert sent(effects, Mirrored) == [mirrored(1)]


def test_with_two_mirrors_a_peer_holds_tuples_apart_until_the_origin_shows_them() -> None:
    a, b = Point("a", ("b", "c"), 2), Point("b", ("a", "c"), 2)
    mirror = sent(a.submit(0, 10), Mirror)[0]
    assert sent(b.durable(b.entry.on_mirror(0, "a", mirror)), Mirrored) == [mirrored(1)]
    assert b.shown() == []
    b.restart(0)
    assert b.entry.egress.complete_from == END
    a.durable(a.entry.on_mirrored(0, "b", mirrored(1)))
    assert a.shown() == []
    effects = a.durable(a.entry.on_mirrored(0, "c", mirrored(1)))
    assert a.shown() == [10]
    b.durable(b.entry.on_mirror(0, "a", sent(effects, Mirror)[0]))
    assert b.shown() == [10], "what it held apart survived its crash"


def test_an_origin_that_waits_too_long_goes_on_and_says_who_was_missing() -> None:
    point = Point("a", ("b", "c"), 2)
    point.submit(0, 10)
    point.durable(point.entry.on_mirrored(0, "c", mirrored(1)))
    assert reported(point.tick(SECOND)) == []
    effects = point.tick(2 * SECOND)
    assert reported(effects) == [Degraded("s", "a", "p", 1, ("b",))]
    assert point.shown() == [10]


def test_an_entry_point_whose_clock_counts_waits_for_all_its_peers() -> None:
    point = Point("a", ("b", "c"), 1, source=CLOCKED)
    for peer in "bc":
        point.durable(point.entry.on_caught_up(0, peer, CaughtUp("s", (), (), (), ())))
    point.submit(0, 0, now=10, clocked=True)
    point.durable(point.entry.on_mirrored(10, "b", mirrored(1)))
    point.tick(100 * SECOND)
    assert point.shown() == []
    point.durable(point.entry.on_mirrored(100 * SECOND, "c", mirrored(1)))
    assert point.shown() == [10]


def test_what_a_peer_did_not_acknowledge_is_sent_again() -> None:
    point = Point("a", ("b", "c"))
    point.submit(0, 10)
    assert sent(point.tick(SECOND // 2), Mirror) == []
    assert [m.sequence.first for m in sent(point.tick(SECOND), Mirror)] == [0, 0]


def test_a_producer_that_turned_here_is_served_from_what_the_former_origin_mirrored() -> None:
    a, b = Point("a", ("b",)), Point("b", ("a",))
    for mirror in sent(a.submit(0, 10, 20), Mirror):
        b.durable(b.entry.on_mirror(0, "a", mirror))
    effects = b.submit(0, 10, 20, attempt=1)
    effects += b.durable(b.entry.on_mirrored(0, "a", Mirrored("s", "p", 2, BEGINNING, 1)))
    assert safe(effects) == 2
    assert b.shown() == [10, 20]


# --- catching up


def test_what_was_shown_under_another_origin_is_not_acknowledged_before_a_peer_holds_it() -> None:
    """The former origin may have lost it."""
    b = Point("b", ("a",))
    b.durable(b.entry.on_mirror(0, "a", Mirror("s", submitted(10), SEQUENCE, (0, BEGINNING))))
    assert b.shown() == [10]
    effects = b.submit(0, 10, attempt=1)
    assert safe(effects) == 0
    (told,) = sent(effects, Mirror)
    assert told.sequence.until == 1, "the peer learns what it lacks"
    assert told.rows is None
    effects = b.durable(b.entry.on_mirrored(0, "a", Mirrored("s", "p", 1, BEGINNING, 1)))
    assert safe(effects) == 1
    assert b.shown() == [10]


def test_what_an_earlier_life_has_shown_is_confirmed_or_the_wait_is_reported() -> None:
    point = Point("a", ("b",))
    point.submit(0, 10)
    point.durable(point.entry.on_mirrored(0, "b", mirrored(1)))
    point.restart(0)
    assert safe(point.submit(0, 10)) == 0
    effects = point.tick(100 * SECOND)
    assert reported(effects) == [Degraded("s", "a", "p", 1, ("b",))]
    assert safe(effects) == 1


def test_an_origin_yields_to_the_next_with_what_it_waits_to_confirm() -> None:
    b = Point("b", ("a", "c"), 2)
    b.durable(b.entry.on_mirror(0, "a", Mirror("s", submitted(10), SEQUENCE, (1, BEGINNING))))
    assert b.shown() == [10]
    b.submit(0, 10, attempt=1)
    later = Sequence("p", 1, 1, 50, 2)
    b.durable(b.entry.on_mirror(0, "a", Mirror("s", None, later, (1, 50))))
    assert b.records[-1].punctuation == 50


def test_a_peer_that_missed_something_asks_and_gets_what_it_lacks() -> None:
    a, b = Point("a", ("b",)), Point("b", ("a",))
    a.submit(0, 10)
    a.durable(a.entry.on_mirrored(0, "b", mirrored(1)))
    (late,) = sent(a.submit(1, 20), Mirror)
    (ask,) = sent(b.entry.on_mirror(2 * SECOND, "a", late), CatchUp)
    assert ask.known == (("p", 0),)
    (answer,) = sent(a.answer("b", ask), CaughtUp)
    b.durable(b.entry.on_caught_up(2 * SECOND, "a", answer))
    assert b.shown() == [10, 20]


def test_a_peer_that_missed_the_last_words_finds_out() -> None:
    a, b = Point("a", ("b",)), Point("b", ("a",))
    a.submit(0, 10, promise=5)
    a.durable(a.entry.on_mirrored(0, "b", mirrored(1, 5)))
    a.entry._producers["p"].peers["b"] = (0, BEGINNING)
    assert sent(a.tick(2 * SECOND), Mirror) == [], "it may be on its way"
    (reminder,) = sent(a.tick(3 * SECOND), Mirror)
    assert reminder.rows is None
    assert sent(b.entry.on_mirror(3 * SECOND, "a", reminder), CatchUp)


def test_a_peer_that_knows_all_is_not_reminded() -> None:
    a = Point("a", ("b",))
    a.submit(0, 10)
    a.durable(a.entry.on_mirrored(0, "b", mirrored(1)))
    assert sent([*a.tick(2 * SECOND), *a.tick(3 * SECOND)], Mirror) == []


def test_an_empty_log_takes_over_what_a_peer_has_and_is_complete_as_far_as_the_peer() -> None:
    a, b = Point("a", ("b",)), Point("b", ("a",))
    a.submit(0, 10, 20)
    a.durable(a.entry.on_mirrored(0, "b", mirrored(2)))
    a.submit(2, 30, promise=25)
    a.durable(a.entry.on_mirrored(0, "b", mirrored(3, 25)))
    (answer,) = sent(a.answer("b", CatchUp("s", ()), trimmed=1), CaughtUp)
    assert answer.complete_from == (20,)
    b.durable(b.entry.on_caught_up(0, "a", answer))
    assert b.shown() == [30]
    assert b.records[-1].complete_from == 20
    assert b.records[-1].punctuation == 25


def test_what_no_peer_has_is_a_gap() -> None:
    point = Point("a", ("b",))
    point.submit(0, 10, promise=5)
    point.durable(point.entry.on_mirrored(0, "b", mirrored(1, 5)))
    lost = {"safe": 4, "high": 40}
    assert sent(point.submit(4, 50, now=SECOND, **lost), CatchUp)
    assert reported(point.submit(4, 50, now=2 * SECOND, **lost)) == [], "b has not answered"
    point.durable(point.entry.on_caught_up(3 * SECOND, "b", CaughtUp("s", (), (), (), (("p", 1),))))
    effects = point.submit(4, 50, now=4 * SECOND, **lost)
    assert reported(effects) == [Gap("s", "a", 5, 40)]
    point.durable(point.entry.on_mirrored(4 * SECOND, "b", mirrored(5, 5)))
    assert point.shown() == [10, 50]
    assert point.records[-1].complete_from == 40


def test_a_clock_promises_nothing_while_acknowledged_tuples_are_missing() -> None:
    point = Point("a", ("b",), source=CLOCKED)
    point.durable(point.entry.on_caught_up(0, "b", CaughtUp("s", (), (), (), ())))
    point.submit(0, 0, now=10, clocked=True)
    point.durable(point.entry.on_mirrored(10, "b", mirrored(1)))
    assert sent(point.durable(point.entry.on_timer(1000)), Mirror), "nothing is missing yet"
    point.submit(4, 0, now=2000, clocked=True, safe=4, high=40)
    assert sent(point.durable(point.entry.on_timer(3000)), Mirror) == []


def test_a_peer_gets_over_a_hole_that_nobody_can_fill() -> None:
    a, b = Point("a", ("b",)), Point("b", ("a",))
    for mirror in sent(a.submit(0, 10, promise=5), Mirror):
        b.durable(b.entry.on_mirror(0, "a", mirror))
    a.durable(a.entry.on_mirrored(0, "b", mirrored(1, 5)))
    a.submit(4, 50, now=0, safe=4, high=40)
    a.submit(4, 50, now=600 * SECOND, safe=4, high=40)
    effects = a.submit(4, 50, now=601 * SECOND, safe=4, high=40, promise=45)
    asked: list[CatchUp] = []
    for second in range(602, 606):
        for mirror in sent(effects, Mirror):
            effects = b.durable(b.entry.on_mirror(second * SECOND, "a", mirror))
            for ask in sent(effects, CatchUp):
                asked.append(ask)
                (answer,) = sent(a.answer("b", ask), CaughtUp)
                b.durable(b.entry.on_caught_up(second * SECOND, "a", answer))
        effects = a.tick(second * SECOND)
    assert len(asked) == 2, "one answer may have been on its way when the hole came up"
    assert b.shown() == [10, 50]
    assert b.records[-1].complete_from == a.records[-1].complete_from == 40


def test_a_log_taken_over_behind_a_hole_is_complete_only_from_there() -> None:
    """The hole may be anywhere in what a peer answers, not just before the first of it."""
    a = Point("a", ("b",))
    a.submit(0, 10, promise=5)
    a.durable(a.entry.on_mirrored(0, "b", mirrored(1, 5)))
    a.submit(4, 50, now=0, safe=4, high=40)
    a.submit(4, 50, now=601 * SECOND, safe=4, high=40, promise=45)
    a.durable(a.entry.on_mirrored(601 * SECOND, "b", mirrored(5, 45)))
    (answer,) = sent(a.answer("b", CatchUp("s", ())), CaughtUp)
    assert [m.sequence.first for m in answer.mirrors] == [0, 4]
    assert answer.complete_from == (BEGINNING, 40)


def test_what_is_refused_of_an_answer_is_not_a_hole() -> None:
    """A peer may still hold what an earlier origin stamped; it is there, though it does not count here."""
    point = Point("a", ("b",), source=CLOCKED)
    pieces = tuple(
        Mirror("s", submitted(first), Sequence("p", first, first + 1, BEGINNING, 0), (0, BEGINNING))
        for first in (1, 2, 3)
    )
    point.durable(point.entry.on_caught_up(0, "b", CaughtUp("s", (), (), (), ())))
    point.submit(0, 0, now=10, clocked=True)
    point.durable(point.entry.on_mirrored(10, "b", mirrored(1)))
    point.submit(1, 0, now=20, clocked=True, attempt=1)
    answer = CaughtUp("s", (("p", 1),), pieces, (10, 10, 10), (("p", 4),))
    for _ in range(3):
        effects = point.durable(point.entry.on_caught_up(700 * SECOND, "b", answer))
        assert reported(effects) == []
    assert point.records[-1].complete_from == BEGINNING


def test_an_answer_that_brings_a_hole_to_light_does_not_say_that_it_cannot_be_filled() -> None:
    point = Point("a", ("b",))
    point.submit(0, 10, promise=5)
    point.durable(point.entry.on_mirrored(0, "b", mirrored(1, 5)))
    piece = Mirror("s", submitted(50), Sequence("p", 4, 5, 5, 0), (5, 5))
    point.durable(point.entry.on_caught_up(SECOND, "b", CaughtUp("s", (), (piece,), (40,), (("p", 5),))))
    effects = point.submit(4, 50, now=2 * SECOND, safe=4, high=40)
    assert reported(effects) == []
    assert sent(effects, CatchUp), "b is asked for what is missing"


def test_behind_a_hole_a_clock_stamps_nothing_that_a_peer_has_stamped() -> None:
    point = Point("a", ("b", "c"), source=CLOCKED)
    nothing = CaughtUp("s", (("p", 4),), (), (), ())
    piece = Mirror("s", batch((50, 4)), Sequence("p", 4, 5, BEGINNING, 0), (5, BEGINNING))
    for peer in "bc":
        point.durable(point.entry.on_caught_up(0, peer, nothing))
    lost = {"safe": 4, "high": 40, "clocked": True}
    point.submit(4, 0, now=SECOND, **lost)
    for peer in "bc":
        point.durable(point.entry.on_caught_up(2 * SECOND, peer, nothing))
    effects = point.submit(4, 0, now=3 * SECOND, **lost)
    assert point.entry.egress.complete_from == 40
    assert sent(effects, CatchUp), "what the peers hold behind the hole comes first"
    point.durable(point.entry.on_caught_up(4 * SECOND, "b", CaughtUp("s", (("p", 4),), (piece,), (40,), ())))
    point.durable(point.entry.on_caught_up(4 * SECOND, "c", nothing))
    point.submit(4, 0, now=5 * SECOND, **lost)
    point.durable(point.entry.on_mirrored(5 * SECOND, "b", mirrored(5)))
    point.durable(point.entry.on_mirrored(5 * SECOND, "c", mirrored(5)))
    assert point.shown() == [50]


def test_a_peer_that_never_answers_is_not_waited_for_without_end() -> None:
    point = Point("a", ("b",))
    lost = {"safe": 4, "high": 40}
    point.submit(4, 50, now=SECOND, **lost)
    point.submit(4, 50, now=600 * SECOND, **lost)
    assert point.entry.egress.complete_from == END
    point.submit(4, 50, now=601 * SECOND, **lost)
    assert point.entry.egress.complete_from == 40


def test_nothing_of_an_answer_is_skipped_that_was_shown_while_the_log_was_read() -> None:
    """What was shown after the log was asked for is neither in it nor in the queue."""
    a, b = Point("a", ("b",)), Point("b", ("a",))
    a.submit(0, 10)
    (read,) = a.entry.on_catch_up("b", CatchUp("s", ()))
    log = tuple(a.records)
    a.durable(a.entry.on_mirrored(0, "b", mirrored(1)))
    a.submit(1, 20)
    (answer,) = sent(a.entry.answer_catch_up(*read.tag[2:], log), CaughtUp)
    b.durable(b.entry.on_caught_up(0, "a", answer))
    assert b.shown() == [10]


def test_a_log_is_needed_by_consumers_and_not_less_than_is_durable() -> None:
    point = Point("a", ("b",))
    point.submit(0, 10, promise=50)
    point.durable(point.entry.on_mirrored(0, "b", mirrored(1, 50)))
    assert point.entry.needed_from == 50
    point.entry.egress.serve(("x", "peer b"))
    point.entry.egress.on_needed("x", 30)
    assert point.entry.needed_from == 30, "what a peer needs is not for other peers to keep"


@pytest.mark.parametrize("pieces", [0, 1, 2, 3, 8, 9])
def test_an_answer_that_is_too_long_comes_in_parts(pieces: int) -> None:
    """However little fits, each part brings something."""
    a, b = Point("a", ("b",)), Point("b", ("a",))
    for number in range(9):
        a.submit(number, 10 * (number + 1))
        a.durable(a.entry.on_mirrored(0, "b", mirrored(number + 1)))
    a.entry._settings = Settings(message_bytes=pieces * (HEADER + 32))
    asked = [CatchUp("s", ())]
    parts = 0
    while asked:
        (answer,) = sent(a.answer("b", asked.pop()), CaughtUp)
        parts += 1
        effects = b.durable(b.entry.on_caught_up(0, "a", answer))
        assert answer.more == bool(sent(effects, CatchUp))
        asked += sent(effects, CatchUp)
    # The last tuple that the peer has comes again: its record may bring a later promise.
    assert parts == {0: 9, 1: 9, 2: 8, 3: 4, 8: 2, 9: 1}[pieces]
    assert b.shown() == a.shown()


def test_a_part_of_an_answer_does_not_let_an_entry_point_stamp() -> None:
    """What it has not been told of may have been stamped and shown already."""
    point = Point("a", ("b",), source=CLOCKED)
    point.durable(point.entry.on_caught_up(0, "b", CaughtUp("s", (), (), (), (("p", 5),), more=True)))
    assert appended(point.submit(0, 10, clocked=True)) == []
    point.durable(point.entry.on_caught_up(0, "b", CaughtUp("s", (), (), (), ())))
    assert sent(point.submit(0, 10, clocked=True), Mirror)


def test_who_only_asks_does_not_hold_the_source_back() -> None:
    a = Point()
    a.submit(0, 10, promise=5)
    (told,) = sent(a.durable(a.entry.on_ask(0, "q", Ask("s", "q", 0))), Accepted)
    assert (told.until, told.promise) == (0, BEGINNING)
    assert a.records[-1].punctuation == 5
    a.submit(1, 20, promise=15)
    assert a.records[-1].punctuation == 15
    told = sent(a.durable(a.entry.on_ask(0, "p", Ask("s", "p", 0))), Accepted)[-1]
    assert told.until == 2


def test_what_a_log_has_forgotten_comes_behind_no_promise() -> None:
    """A producer's records have been trimmed, and the entry point has begun a new life: its next tuples are
    late if the source's promise has passed them meanwhile, and not in the log behind it."""
    a = Point()
    a.durable(a.entry.on_submit(0, "p", submission(0, 10, promise=5)))
    other = msgspec.structs.replace(submission(0, 100, promise=90), producer="q")
    a.durable(a.entry.on_submit(0, "q", other))
    a.durable(a.entry.on_submit(0, "p", submission(1, promise=95)))
    a.records = a.records[-1:]
    last = a.records[0]
    assert last.sequence is not None
    a.records = [msgspec.structs.replace(last, sequence=msgspec.structs.replace(last.sequence, producer="r"))]
    a.restart(0)
    effects = a.durable(a.entry.on_submit(0, "p", submission(1, 40, 200, promise=20, safe=1)))
    assert [event.tuples for event in reported(effects)] == [1]
    assert a.shown() == [200]


def test_what_each_entry_point_reads_by_itself_is_mirrored_by_nobody() -> None:
    a = Point(peers=("b", "c"), mirrors=2, source=Source("s", COLUMNS, identity="partition"))
    effects = a.submit(0, 10, 20)
    assert not sent(effects, Mirror)
    assert a.shown() == [10, 20]


def test_who_asks_at_an_earlier_attempt_hears_of_the_last_and_changes_nothing() -> None:
    a = Point()
    a.submit(0, 10, attempt=3)
    (told,) = sent(a.durable(a.entry.on_ask(0, "other", Ask("s", "p", 2))), Accepted)
    assert (told.until, told.attempt) == (0, 3)
    effects = a.submit(1, 20, attempt=3)
    assert {effect.to for effect in effects if isinstance(effect, Send)} == {"p"}
