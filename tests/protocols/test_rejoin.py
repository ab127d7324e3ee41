"""Branches of one stream rejoined: which records count, when the stream begins, what a gap is."""

import pytest
from pieces import SECOND, append, batch, contents, log, opened, reported

from anabranch.protocols.events import Disagreement, Gap
from anabranch.protocols.records import Record, Writer
from anabranch.protocols.rejoin import Rejoin
from anabranch.protocols.settings import Settings
from anabranch.streams.punctuation import BEGINNING, END

SETTINGS = Settings(branch_timeout_most=24 * SECOND, gap_patience=100 * SECOND)
RECORDS = log(([(10, 1)], 5), ([(20, 2)], 15), ([(30, 3)], 25))


def rejoin(*sources: str, settle: int | None = BEGINNING) -> Rejoin:
    made = Rejoin("s", "here", SETTINGS, 0)
    made.keep_only(0, sources)
    if settle is not None:
        made.frontier.settle(settle)
    return made


def test_the_first_copy_passes_and_every_later_one_stops() -> None:
    r = rejoin("a", "b")
    for source in ("a", "b"):
        r.opened(0, source, 0, False)
    passed = [
        contents(r.record(0, source, position, RECORDS[position])[0])
        for source, position in [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2)]
    ]
    assert passed == [[(10, 1)], [], [(20, 2)], [], [(30, 3)], []]
    assert r.received == [3, 3]
    assert r.filter.ranks.sum() == 6


def test_a_record_sent_twice_counts_once() -> None:
    r = rejoin("a")
    r.opened(0, "a", 0, False)
    for position in (0, 1, 0, 1):
        r.record(0, "a", position, RECORDS[position])
    assert r.received == [2]


def test_a_hole_opens_the_branch_again_where_it_stood_and_only_once() -> None:
    r = rejoin("a")
    r.opened(0, "a", 0, False)
    r.record(0, "a", 0, RECORDS[0])
    rows, moved, effects = r.record(1, "a", 2, RECORDS[2])
    assert rows is None
    assert not moved
    (request,) = opened(effects)
    assert (request.position, request.generation, request.complete_from) == (1, 1, 5)
    assert r.record(2, "a", 2, RECORDS[2]) == (None, False, []), "the first request is on its way"
    r.opened(3, "a", 1, True)
    assert contents(r.record(3, "a", 1, RECORDS[1])[0]) == [(20, 2)]


def test_other_contents_at_the_expected_position_are_not_taken() -> None:
    """A log without its tail goes on at positions its readers have seen: its generation gives it away."""
    r = rejoin("a")
    r.opened(0, "a", 0, False)
    r.record(0, "a", 0, RECORDS[0])
    r.record(0, "a", 1, RECORDS[1])
    again = Writer("out/s", 2)
    again.recover(0, RECORDS[:1])
    append(again, [(20, 2)], 15)
    rows, _, effects = r.record(1, "a", 2, append(again, [(30, 3)], 25))
    assert rows is None
    assert len(opened(effects)) == 1


def test_a_branch_that_starts_over_is_complete_only_from_where_it_starts() -> None:
    r = rejoin("a", settle=15)
    r.opened(0, "a", 0, False)
    r.record(0, "a", 0, RECORDS[0])
    late = log(([(50, 5)], 45), ([(60, 6)], 55))
    r.opened(1, "a", 1, False)
    _, moved, _ = r.record(1, "a", 1, late[1])
    assert not moved, "what lies between 15 and 50 it has not sent"
    assert r.frontier.punctuation == 15
    assert r.readers["a"].complete_from == 50


def test_answers_to_requests_of_an_earlier_life_are_ignored() -> None:
    r = rejoin("a")
    r.opened(0, "a", 0, False)
    r.record(0, "a", 0, RECORDS[0])
    r.opened(1, "a", 3, True)
    assert r.readers["a"].position == 1


@pytest.mark.parametrize("source", ["a", "z"])
def test_records_of_a_branch_that_is_not_open_are_ignored(source: str) -> None:
    r = rejoin("a")
    assert r.record(0, source, 0, RECORDS[0]) == (None, False, [])


def test_a_stream_begins_once_a_branch_suffices() -> None:
    r = rejoin("a", "b", settle=None)
    r.opened(0, "a", 0, False)
    r.record(0, "a", 0, log(([(50, 5)], 45), complete_from=40)[0])
    assert not r.settle(0, 30), "b may be complete from earlier"
    assert r.settle(0, 40), "nobody downstream can do with more"
    assert (r.frontier.complete_from, r.frontier.punctuation) == (40, 45)
    assert not r.settle(0, 40), "it begins only once"


def test_a_stream_begins_once_all_branches_have_told_theirs() -> None:
    r = rejoin("a", "b", settle=None)
    for source, complete_from in (("a", 40), ("b", 35)):
        assert not r.settle(0, BEGINNING)
        r.opened(0, source, 0, False)
        r.record(0, source, 0, log(([(50, 5)], 45), complete_from=complete_from)[0])
    assert r.settle(0, BEGINNING)
    assert r.frontier.complete_from == 35


def test_a_stream_does_not_wait_for_ever_for_a_branch_that_does_not_answer() -> None:
    r = rejoin("a", "b", settle=None)
    assert not r.settle(200 * SECOND, BEGINNING), "nothing is known of any branch"
    r.opened(0, "a", 0, False)
    r.record(0, "a", 0, log(([(50, 5)], 45), complete_from=40)[0])
    assert not r.settle(99 * SECOND, BEGINNING)
    assert r.settle(100 * SECOND, BEGINNING)
    assert r.frontier.complete_from == 40


def test_a_gap_is_certain_when_every_branch_is_complete_only_from_beyond_it() -> None:
    r = rejoin("a", "b", settle=15)
    for source, complete_from in (("a", 40), ("b", 35)):
        assert r.skip_gap(0) == []
        r.opened(0, source, 0, False)
        r.record(0, source, 0, log(([(50, 5)], 45), complete_from=complete_from)[0])
    assert reported(r.skip_gap(0)) == [Gap("s", "here", 15, 35)]
    assert r.frontier.punctuation == 45, "behind the gap both branches may speak"
    assert r.skip_gap(0) == []


def test_a_gap_that_a_silent_branch_may_fill_is_waited_for() -> None:
    r = rejoin("a", "b", settle=15)
    r.opened(0, "a", 0, False)
    r.record(0, "a", 0, log(([(50, 5)], 45), complete_from=40)[0])
    assert r.skip_gap(99 * SECOND) == []
    assert reported(r.skip_gap(100 * SECOND)) == [Gap("s", "here", 15, 40)]


def test_a_silent_branch_is_opened_again_ever_more_seldom() -> None:
    r = rejoin("a")
    times = [now for now in range(0, 100 * SECOND, SECOND) if r.sweep(now)]
    pauses = [(b - a) // SECOND for a, b in zip([0, *times], times, strict=False)]
    assert pauses == [3, 6, 12, 24, 24, 24]


def test_a_clock_that_is_set_back_delays_the_opening_of_a_silent_branch_by_one_pause() -> None:
    r = rejoin("a")
    r.opened(100 * SECOND, "a", 0, False)
    times = [now for now in range(70 * SECOND, 100 * SECOND, SECOND) if r.sweep(now)]
    assert times[0] == 73 * SECOND


def test_a_finished_stream_opens_nothing() -> None:
    r = rejoin("a")
    r.opened(0, "a", 0, False)
    r.record(0, "a", 0, log(([], END))[0])
    assert r.sweep(100 * SECOND) == []


def test_a_plan_opens_new_branches_and_closes_those_that_left() -> None:
    r = rejoin("a", "b")
    effects = r.keep_only(0, ("b", "c"))
    assert [(type(effect).__name__, effect.source) for effect in effects] == [
        ("CloseBranch", "a"),
        ("OpenBranch", "c"),
    ]
    back = r.keep_only(0, ("a", "b", "c"))
    assert [effect.position for effect in opened(back)] == [None], "it is a new branch"
    assert r.names == ["a", "b", "c"], "whose deliveries are counted on"


FULL = log(([(10, 1)], 5), ([(20, 2)], 15), ([(SECOND + 5, 3)], 2 * SECOND))
LACKS_2 = log(([(10, 1)], 5), ([(SECOND + 5, 3)], 2 * SECOND))


def read(r: Rejoin, source: str, records: tuple[Record, ...], position: int = 0) -> list[object]:
    r.opened(0, source, position, False)
    numbered = enumerate(records[position:], position)
    return [e for n, record in numbered for e in reported(r.record(0, source, n, record)[2])]


def test_replicas_that_disagree_are_reported() -> None:
    r = rejoin("a", "b")
    assert read(r, "b", FULL) == []
    assert read(r, "a", LACKS_2) == [Disagreement("s", "here", ("a", "b"), 0, SECOND)]
    assert r.frontier.punctuation == 2 * SECOND


def test_a_branch_opened_in_the_middle_is_compared_only_behind_what_it_lacks() -> None:
    r = rejoin("a", "b")
    assert read(r, "b", FULL) == []
    assert read(r, "a", FULL, 1) == []
    assert read(r, "a", FULL, 2) == []


def test_a_consumer_that_crashed_reads_its_branches_anew() -> None:
    r = rejoin("a", "b")
    for source in ("a", "b"):
        r.opened(0, source, 0, False)
    r.record(0, "a", 0, FULL[0])
    own = Writer("in/s", 1)
    own.complete_from = BEGINNING
    own.punctuation = 5
    after = Rejoin("s", "here", SETTINGS, 0)
    after.restore(0, (own.append(batch((10, 1)), cursors=r.cursors).record,))
    after.keep_only(0, ("a", "b"))
    after.opened(0, "a", 1, True)
    events = [e for n in (1, 2) for e in reported(after.record(0, "a", n, FULL[n])[2])]
    assert events == []
    assert read(after, "b", FULL) == [], "of a only what follows 10 was read in this life"


def test_a_branch_that_was_alone_for_a_while_is_read_anew() -> None:
    r = rejoin("a", "b")
    read(r, "b", FULL[:1])
    r.keep_only(0, ("b",))
    r.record(0, "b", 1, FULL[1])
    r.keep_only(0, ("a", "b"))
    r.record(0, "b", 2, FULL[2])
    assert read(r, "a", FULL) == []


def test_a_branch_that_left_the_plan_is_compared_no_more() -> None:
    r = rejoin("a", "b", "c")
    read(r, "a", LACKS_2)
    r.keep_only(0, ("b", "c"))
    assert read(r, "b", FULL) == []
    assert read(r, "c", FULL) == []


def test_a_replica_that_restarts_may_bring_again_what_its_log_no_longer_holds() -> None:
    r = rejoin("a", "b")
    read(r, "b", log(([(10, 1)], 5), ([(20, 2)], 15), ([(SECOND + 5, 3)], 3 * SECOND)))
    again = Writer("out/s", 2)
    again.recover(0, FULL[:2])
    again.complete_from = BEGINNING
    repeated = append(again, [(20, 2)], 15)
    rest = append(again, [(SECOND + 5, 3), (SECOND + 6, 4)], 3 * SECOND)
    assert read(r, "a", (*FULL[:2], repeated, rest)) == [
        Disagreement("s", "here", ("a", "b"), SECOND, 2 * SECOND)
    ], "the first second is not compared, the second is"
