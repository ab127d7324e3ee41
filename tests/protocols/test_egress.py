"""What a replica yields: appended once, with a hole where it has one, kept until nobody needs it."""

from pieces import append, appended, batch, contents, log, reported

from anabranch.protocols.effects import Append, Trim
from anabranch.protocols.egress import Egress
from anabranch.protocols.events import Trimmed
from anabranch.protocols.records import Sequence, Writer
from anabranch.protocols.settings import Settings
from anabranch.streams.punctuation import BEGINNING, END


def egress(*records: tuple[list[tuple[int, int]], int]) -> Egress:
    made = Egress("s", "here", Settings(), 2)
    made.recover(0, log(*records))
    if not records:
        made.begin(BEGINNING)
    return made


def test_what_is_offered_is_appended_with_its_punctuation() -> None:
    (effect,) = egress().offer(batch((10, 1)), 5)
    assert isinstance(effect, Append)
    assert (contents(effect.record.rows), effect.record.punctuation) == ([(10, 1)], 5)


def test_what_is_too_large_for_a_record_takes_several_and_only_the_last_promises() -> None:
    e = Egress("s", "here", Settings(message_bytes=200), 2)
    e.begin(BEGINNING)
    tuples = [(ts, ts) for ts in range(1, 21)]
    records = [effect.record for effect in appended(e.offer(batch(*tuples), 30))]
    assert [row for record in records for row in contents(record.rows)] == tuples
    assert len(records) == 4
    assert [record.punctuation for record in records] == [BEGINNING] * 3 + [30]
    assert all(record.rows is not None and record.rows.nbytes <= 200 for record in records)


def test_nothing_new_is_not_appended() -> None:
    e = egress()
    e.offer(None, 5)
    assert e.offer(None, 5) == []
    assert e.offer(None, 4) == []


def test_an_entry_point_appends_also_what_only_tells_how_far_it_is() -> None:
    e = egress()
    assert len(e.offer(None, BEGINNING, Sequence("p", 0, 3, BEGINNING, 0))) == 1


def test_what_the_log_has_beyond_its_punctuation_is_not_appended_again() -> None:
    e = egress(([(10, 1)], 5), ([(20, 2)], 15))
    assert e.offer(batch((10, 1)), 5) == []
    (effect,) = e.offer(batch((20, 2), (30, 3)), 15)
    assert contents(effect.record.rows) == [(30, 3)]


def test_what_the_log_has_up_to_its_punctuation_is_not_appended_again() -> None:
    e = egress(([(10, 1)], 5), ([(20, 2)], 20))
    assert e.offer(batch((10, 1)), 5) == []
    assert e.offer(batch((20, 2)), 20) == []


def test_an_older_punctuation_of_a_restarted_replica_changes_nothing() -> None:
    e = egress(([(10, 1)], 15), ([(20, 2)], 15))
    assert e.offer(None, 7) == []
    assert e.writer.punctuation == 15


def test_a_replica_that_goes_on_where_its_log_ends_makes_no_hole() -> None:
    e = egress(([(10, 1)], 15))
    assert not e.begin(15)
    assert e.complete_from == BEGINNING


def test_a_replica_that_lacks_something_makes_a_hole_and_says_so() -> None:
    e = egress(([(10, 1)], 15))
    assert e.begin(40)
    record = e.announce().record
    assert (record.complete_from, record.punctuation) == (40, 40)


def test_nothing_is_promised_before_it_is_known_where_the_replica_begins() -> None:
    e = Egress("s", "here", Settings(), 1)
    assert not e.begin(END)
    (effect,) = e.offer(batch((10, 1)), 50)
    assert (effect.record.complete_from, effect.record.punctuation) == (END, BEGINNING)


def test_nothing_is_trimmed_before_every_consumer_has_told_what_it_needs() -> None:
    e = egress(([(10, 1)], 9), ([(20, 2)], 19), ([(30, 3)], 29))
    e.serve(("x", "y"))
    e.on_needed("x", 25)
    assert e.trim(1000) == []
    e.on_needed("y", 15)
    assert e.trim(1000) == [Trim("out/s", 1)]
    e.on_needed("y", 5)
    assert e.needed_from == 15, "what is no longer needed is not needed again"


def test_a_consumer_that_left_the_plan_keeps_nothing() -> None:
    e = egress(([(10, 1)], 9), ([(20, 2)], 19))
    e.serve(("x", "y"))
    e.on_needed("x", 19)
    e.serve(("x",))
    assert e.needed_from == 19
    e.on_needed("stranger", 5)
    assert e.needed_from == 19


def test_retention_takes_what_a_consumer_still_needs_and_says_so() -> None:
    e = egress(([(10, 1)], 9), ([(20, 2)], 19), ([(30, 3)], 29), ([(40, 4)], 39))
    e.serve(("x", "y"))
    e.on_needed("y", 39)
    effects = e.trim(10)
    assert effects[0] == Trim("out/s", 2)
    assert reported(effects) == [Trimmed("s", "here", 20, ("x",))]


def test_slack_keeps_more_than_consumers_need() -> None:
    e = Egress("s", "here", Settings(rebuild_slack=10), 2)
    e.recover(0, log(([(10, 1)], 9), ([(20, 2)], 19), ([(30, 3)], 29)))
    e.serve(("x",))
    e.on_needed("x", 29)
    assert e.trim(1000) == [Trim("out/s", 1)]


def test_a_log_is_safe_up_to_what_is_durable() -> None:
    e = egress()
    writer = Writer("out/s", 1)
    e.on_durable(append(writer, [], 30))
    e.on_durable(append(writer, [], 20))
    assert e.durable == 30


def test_absent_consumers_are_not_waited_for_to_tell_for_the_first_time() -> None:
    e = egress()
    e.serve(("a", "b"))
    e.on_needed("a", 30)
    assert e.needed_from == e.needed_without({"a"}) == BEGINNING
    assert e.needed_without({"b"}) == 30
    e.on_needed("b", 20)
    assert e.needed_without({"b"}) == 20, "what it has told counts"
