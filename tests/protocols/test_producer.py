"""A producer keeps its tuples until they are safe, promises by its clock, and turns where it is heard."""

import pyarrow as pa
from pieces import COLUMNS, SECOND, SOURCE, sent

from anabranch.graph import Source
from anabranch.protocols.effects import Effect, Send, SetTimer
from anabranch.protocols.messages import Accepted, Ask, Resend, Submit
from anabranch.protocols.producer import Producer
from anabranch.protocols.settings import Settings
from anabranch.streams.batch import TIMESTAMP
from anabranch.streams.punctuation import BEGINNING, END

SETTINGS = Settings()


def tuples(*timestamps: int) -> pa.RecordBatch:
    ts = pa.array(timestamps, pa.int64()).view(TIMESTAMP)
    return pa.RecordBatch.from_pydict({"ts": ts, "v": pa.array(range(len(timestamps)), pa.int64())})


def producer(
    source: Source = SOURCE, entries: tuple[str, ...] = ("a", "b"), slides: tuple[int, ...] = ()
) -> Producer:
    made = Producer(source, "p", entries, slides, SETTINGS)
    made.start(0)
    return made


def submitted(effects: list[Effect]) -> list[tuple[str, int, int, int]]:
    """To whom, from which sequence, how many, with which attempt."""
    return [
        (e.to, e.message.first, 0 if e.message.rows is None else e.message.rows.num_rows, e.message.attempt)
        for e in effects
        if isinstance(e, Send) and isinstance(e.message, Submit)
    ]


def test_what_comes_by_a_replay_is_promised_by_when_it_came() -> None:
    p = producer(Source("s", COLUMNS, "source", SECOND))
    (first,) = sent(p.offer(50 * SECOND, tuples(9 * SECOND), arrived=10 * SECOND), Submit)
    effects = p.on_timer(51 * SECOND, "promise", arrived=11 * SECOND)
    (second,) = sent(effects, Submit)
    assert (first.promise, second.promise) == (9 * SECOND - 1, 10 * SECOND - 1)
    assert [e.after for e in effects if isinstance(e, SetTimer)] == [1]
    assert p.unsafe == 16


def test_time_that_stands_still_in_front_of_a_period_is_not_promised_again_and_again() -> None:
    p = producer()
    now, waited, said = 50 * SECOND, 0, 0
    while waited < SECOND:
        effects = p.on_timer(now + waited, "promise", arrived=10 * SECOND)
        said += len(sent(effects, Submit))
        (timer,) = [e for e in effects if isinstance(e, SetTimer)]
        waited += timer.after
    assert said == 1
    (later,) = sent(p.on_timer(now + waited, "promise", arrived=11 * SECOND), Submit)
    assert later.promise == 11 * SECOND - 1, "and it goes on when time does"


def accepted(until: int, promise: int = BEGINNING, high: int = BEGINNING) -> Accepted:
    return Accepted("s", "p", until, promise, high)


def test_tuples_are_numbered_and_the_next_promise_is_by_the_clock() -> None:
    p = producer(Source("s", COLUMNS, "source", 3 * SECOND))
    (first,) = sent(p.offer(10 * SECOND, tuples(9 * SECOND, 8 * SECOND)), Submit)
    (second,) = sent(p.offer(11 * SECOND, tuples(11 * SECOND)), Submit)
    assert (first.first, first.promise, first.high) == (0, 7 * SECOND - 1, BEGINNING)
    assert (second.first, second.promise, second.high) == (2, 8 * SECOND - 1, 9 * SECOND)


def test_a_promise_never_decreases() -> None:
    p = producer()
    (first,) = sent(p.offer(10 * SECOND, tuples(10 * SECOND)), Submit)
    (second,) = sent(p.offer(9 * SECOND, tuples(11 * SECOND)), Submit)
    assert second.promise == first.promise


def test_promises_are_due_at_the_interval_and_at_ends_of_windows() -> None:
    p = producer(slides=(300_000,))
    (timer,) = [e for e in p.on_timer(1_000_001, "promise") if isinstance(e, SetTimer)]
    # Promised is 1,000,000. The next end of a window, 1,200,000, is covered at 1,200,001.
    assert timer == SetTimer("promise", 200_000)


def test_a_source_that_entry_points_stamp_promises_nothing() -> None:
    p = producer(Source("s", COLUMNS, "entry"))
    (submit,) = sent(p.offer(SECOND, tuples(1).select(["v"])), Submit)
    assert submit.promise == BEGINNING
    (last,) = sent(p.close(SECOND), Submit)
    assert last.promise == END


def test_what_is_safe_is_kept_no_longer() -> None:
    p = producer()
    p.offer(0, tuples(1, 2))
    p.offer(0, tuples(3))
    p.on_accepted(0, accepted(2))
    assert [first for _, first, _, _ in submitted(p.on_resend(2 * SECOND, "a", Resend("s", "p", 2)))] == [2]


def test_it_is_done_when_the_end_is_safe() -> None:
    p = producer()
    p.offer(0, tuples(1))
    p.close(1)
    assert not p.done
    p.on_accepted(1, accepted(1, 0))
    assert not p.done, "nobody knows yet that it was the last tuple"
    p.on_accepted(1, accepted(1, END))
    assert p.done


def test_it_turns_to_the_next_entry_point_with_all_that_is_not_safe() -> None:
    p = producer()
    p.offer(0, tuples(1))
    p.on_accepted(0, accepted(1, high=77))
    p.offer(SECOND, tuples(2))
    assert submitted(p.on_timer(4 * SECOND, "watch")) == []
    effects = p.on_timer(5 * SECOND, "watch")
    assert submitted(effects) == [("b", 1, 1, 1)]
    (submit,) = sent(effects, Submit)
    assert submit.safe == (1, BEGINNING)
    assert submitted(p.on_timer(9 * SECOND, "watch")) == [("a", 1, 1, 2)], "and round again"


def test_an_idle_producer_does_not_turn() -> None:
    p = producer()
    assert submitted(p.on_timer(100 * SECOND, "watch")) == []


def test_it_sends_again_what_its_entry_point_lost_but_not_faster_than_it_can_be_asked() -> None:
    p = producer()
    p.offer(0, tuples(1))
    assert submitted(p.on_resend(SECOND, "b", Resend("s", "p", 0))) == [], "not its entry point"
    assert submitted(p.on_resend(SECOND, "a", Resend("s", "p", 0))) == [("a", 0, 1, 0)]
    assert submitted(p.on_resend(SECOND + 1, "a", Resend("s", "p", 0))) == []


def test_a_later_promise_stands_for_an_earlier_one() -> None:
    p = producer()
    for second in range(1, 50):
        p.on_timer(second * SECOND, "promise")
    assert len(submitted(p.on_timer(60 * SECOND, "watch"))) <= 1


def test_a_producer_that_is_told_promises_by_no_clock_and_asks_before_it_begins() -> None:
    p = Producer(SOURCE, "p", ("a", "b"), (), SETTINGS, attempt=5, told=True)
    first, *rest = p.start(1000)
    assert first == Send("a", Ask("s", "p", 5))
    assert not any(isinstance(effect, SetTimer) and effect.key == "promise" for effect in rest)
    p.go_on(7, 30, 40)
    (told,) = sent(p.offer(2000, tuples(50, 60), promise=45), Submit)
    assert (told.first, told.promise, told.high, told.safe, told.attempt) == (7, 45, 40, (7, BEGINNING), 5)
    assert not p.is_safe
    p.on_accepted(2000, accepted(9, 45, 999))
    assert (p.is_safe, p.next, p.high) == (True, 9, 60)
    p.tell(2100, 20)
    assert p.promise == 45


def test_what_is_safe_before_it_is_offered_is_not_kept() -> None:
    """An earlier life has brought it, and its last messages came after this one had asked how far it was."""
    p = producer()
    p.on_accepted(SECOND, Accepted("s", "p", 5, 9 * SECOND, 9 * SECOND, 0))
    p.offer(2 * SECOND, tuples(1, 2, 3), promise=8 * SECOND)
    assert not p.is_safe
    p.on_accepted(3 * SECOND, Accepted("s", "p", 5, 9 * SECOND, 9 * SECOND, 0))
    assert p.is_safe
