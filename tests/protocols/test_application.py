"""What an application receives: each tuple once, on first arrival or in order, and word of every gap."""

from pieces import SECOND, contents, log, reported

from anabranch.plan import Branch, Plan
from anabranch.protocols.application import Application
from anabranch.protocols.effects import Deliver, Effect
from anabranch.protocols.events import Gap
from anabranch.protocols.messages import Needed
from anabranch.protocols.settings import Settings
from anabranch.streams.punctuation import BEGINNING, END


def application(ordered: bool, *sources: str) -> Application:
    made = Application("app", "s", ordered, Settings(gap_patience=100 * SECOND), 0)
    branches = tuple(Branch("s", source, "app") for source in sources)
    made.connect(0, Plan(1, "", {"s": sources}, {}, (), branches))
    for source in sources:
        made.rejoin.opened(0, source, 0, False)
    return made


def delivered(effects: list[Effect]) -> list[tuple[int, int]]:
    return [row for effect in effects if isinstance(effect, Deliver) for row in contents(effect.rows)]


RECORDS = log(([(20, 2), (10, 1)], 5), ([(15, 3)], 14), ([], END))


def test_tuples_are_delivered_as_they_first_arrive() -> None:
    app = application(False, "a", "b")
    got = []
    for position, record in enumerate(RECORDS):
        for source in "ab":
            got += delivered(app.on_record(0, source, position, record))
    assert got == [(20, 2), (10, 1), (15, 3)]
    assert app.complete


def test_in_order_they_wait_for_the_punctuation() -> None:
    app = application(True, "a")
    got = [delivered(app.on_record(0, "a", position, record)) for position, record in enumerate(RECORDS)]
    assert got == [[], [(10, 1)], [(15, 3), (20, 2)]]


def test_a_stream_that_is_there_from_the_beginning_begins_in_silence() -> None:
    app = application(False, "a")
    assert reported(app.on_record(0, "a", 0, RECORDS[0])) == []


def test_what_came_before_the_stream_begins_here_is_a_gap() -> None:
    app = application(False, "a")
    effects = app.on_record(0, "a", 0, log(([(50, 5)], 45), complete_from=40)[0])
    assert reported(effects) == [Gap("s", "app", BEGINNING, 40)]
    assert delivered(effects) == [(50, 5)]


def test_a_gap_in_the_middle_is_reported_and_the_rest_goes_on_in_order() -> None:
    app = application(True, "a")
    first = log(([(10, 1)], 12))[0]
    app.on_record(0, "a", 0, first)
    app.rejoin.opened(0, "a", 7, False)
    behind = log(([(50, 5)], 45), ([(60, 6)], 55), complete_from=40)
    assert delivered(app.on_record(0, "a", 7, behind[0])) == []
    effects = app.on_tick(SECOND)
    assert reported(effects) == [Gap("s", "app", 12, 40)]
    assert delivered(app.on_record(0, "a", 8, behind[1])) == [(50, 5)]


def test_it_tells_every_branch_what_it_needs_no_more_and_which_plan_it_follows() -> None:
    app = application(False, "a", "b")
    app.on_record(0, "a", 0, RECORDS[0])
    told = [(e.to, e.message) for e in app.on_tick(SECOND) if getattr(e, "message", None) is not None]
    assert told == [("a", Needed("s", 5, 1, (1, ""))), ("b", Needed("s", 5, 0, (1, "")))]
