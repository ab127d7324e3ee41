"""A fragment rebuilt from its logs goes on as if nothing had happened; one without its history waits."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pieces import COLUMNS, append, appended, contents, log, reported, sent

from anabranch.engines.arrow import ArrowEngine
from anabranch.graph import (
    Aggregate,
    CountAggregate,
    Filter,
    Graph,
    Join,
    Map,
    Operator,
    Source,
    TopK,
    Union,
)
from anabranch.protocols.effects import Effect, Send
from anabranch.protocols.egress import Egress
from anabranch.protocols.events import Oversized, Waiting
from anabranch.protocols.fragment import Fragment
from anabranch.protocols.messages import SnapshotRequest
from anabranch.protocols.records import Record, Writer
from anabranch.protocols.roles import FragmentRole, spans
from anabranch.protocols.settings import Settings
from anabranch.sim.disk import Disk
from anabranch.streams.punctuation import BEGINNING, END

SETTINGS = Settings(snapshot_interval=5)
OPERATORS: tuple[Operator, ...] = (
    Filter("o", "s", "v % 2 = 0"),
    Map("o", "s", (("w", "v + 1"),)),
    Union("o", ("s", "t")),
    Join("o", "s", "t", 5, (), "true"),
    Aggregate("o", "s", 10, 5, (), (("n", "count(*)"), ("m", "max(v)"))),
    TopK("o", "s", 2, "v", 10, 5),
    CountAggregate("o", "s", 3, 2, (), (("n", "count(*)"), ("m", "sum(v)"))),
)


class Site:
    """A fragment of one operator over the ingress logs of a disk, and an application."""

    def __init__(self, operator: Operator) -> None:
        self.graph = Graph("q", (Source("s", COLUMNS), Source("t", COLUMNS)), (operator,), ())
        self.role = FragmentRole(("o",), operator.inputs, ("o",), operator.inputs)
        self.disk = Disk()
        self.life = 0
        self.start()

    def start(self) -> list[Effect]:
        self.life += 1
        egress = Egress("o", "here", SETTINGS, self.life)
        egress.recover(*self.disk.read("out/o"))
        egress.serve(("app",))
        engine = ArrowEngine(self.graph, ("o",), ("o",), "here")
        args = (engine, spans(self.graph, self.role), {"o": egress}, "here", SETTINGS, self.life)
        self.fragment = Fragment(("o",), *args)
        self.egress = egress
        effects = self.keep(self.fragment.recover_snapshots(*self.disk.read("snapshot/o")))
        for stream in self.role.inputs:
            effects += self.keep(self.fragment.on_log(stream, *self.disk.read(f"in/{stream}")))
        return effects

    def keep(self, effects: list[Effect]) -> list[Effect]:
        for effect in list(effects):
            for one in appended([effect]):
                assert one.position == self.disk.stream(one.stream).end
                self.disk.stream(one.stream).append(one.record)
                if one.stream == "out/o":
                    self.egress.on_durable(one.record)
                else:
                    effects += self.keep(self.fragment.on_saved(one))
            if type(effect).__name__ == "Trim":
                self.disk.stream(effect.stream).trim(effect.keep)
        return effects

    def take_in(self, stream: str, record: Record) -> list[Effect]:
        position = self.disk.stream(f"in/{stream}").end
        self.disk.stream(f"in/{stream}").append(record)
        return self.keep(self.fragment.on_record(stream, position, record))

    def yielded(self) -> dict[tuple[int, int], list[object]]:
        found: dict[tuple[int, int], list[object]] = {}
        for record in self.disk.read("out/o")[1]:
            if record.rows is not None:
                for row in zip(*(column.to_pylist() for column in record.rows.columns), strict=True):
                    found.setdefault(row[1:3], list(row))
        return found


def inputs(dice: random.Random, streams: tuple[str, ...], count: int) -> list[tuple[str, Record]]:
    """The records of ingress logs, in the order in which they come."""
    writers = {stream: Writer(f"in/{stream}", 1) for stream in streams}
    made, number = [], 0
    for step in range(count):
        stream = dice.choice(streams)
        writer = writers[stream]
        writer.complete_from = BEGINNING
        tuples = [
            (max(writer.punctuation, 0) + dice.randrange(1, 15), number + i) for i in range(dice.randrange(3))
        ]
        number += len(tuples)
        made.append((stream, append(writer, tuples, max(writer.punctuation, 2 * step - dice.randrange(8)))))
    return made + [(stream, append(writers[stream], [], END)) for stream in streams]


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: type(operator).__name__)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_crash_anywhere_changes_nothing(operator: Operator, seed: int) -> None:
    dice = random.Random(seed)
    steady, shaken = Site(operator), Site(operator)
    may_lose = dice.random() < 0.5 and not isinstance(operator, CountAggregate)
    for stream, record in inputs(dice, operator.inputs, 20):
        steady.take_in(stream, record)
        shaken.take_in(stream, record)
        if dice.random() < 0.15:
            shaken.disk.stream("out/o").lose_tail(dice.randrange(4) if may_lose else 0)
            shaken.start()
        if not may_lose and dice.random() < 0.3:
            shaken.egress.on_needed("app", shaken.egress.durable - dice.randrange(10))
            for name in operator.inputs:
                trim(shaken, name)
    assert shaken.yielded() == steady.yielded()
    assert shaken.egress.durable == END


def trim(site: Site, stream: str) -> None:
    """The ingress log forgets all that the fragment says it will not need again."""
    needed = site.fragment.needed_of(stream, here=True)
    log = site.disk.stream(f"in/{stream}")
    kept = [i for i, record in enumerate(log.records) if any(ts > needed for ts, _ in contents(record.rows))]
    log.trim(log.first + min(kept, default=len(log.records) - 1))


COUNT = OPERATORS[-1]
RECORDS: tuple[tuple[list[tuple[int, int]], int], ...] = (
    ([(20, 1), (25, 2)], 22),
    ([(30, 3)], 28),
    ([(35, 4), (38, 5)], 40),
)
LATE = log(*RECORDS, complete_from=15)


def test_without_its_history_it_waits_asks_its_peers_and_says_so_once() -> None:
    site = Site(COUNT)
    site.take_in("s", LATE[0])
    assert site.fragment.waiting
    effects = site.fragment.on_tick(("a", "b"))
    assert [e.to for e in effects if isinstance(e, Send)] == ["a", "b"]
    assert sent(effects, SnapshotRequest) == [SnapshotRequest("o")] * 2
    assert reported(effects) == [Waiting("o", "here", 15)]
    assert reported(site.fragment.on_tick(("a", "b"))) == []
    assert site.fragment.offer_snapshot() is None, "it has none to give"
    assert site.yielded() == {}


def test_a_peers_snapshot_lets_it_begin_as_if_it_had_been_there() -> None:
    whole, newcomer = Site(COUNT), Site(COUNT)
    history = log(([(3, 10), (9, 11)], 12), ([(14, 12)], 15), *RECORDS)
    for record in history[:3]:
        whole.take_in("s", record)
    newcomer.take_in("s", LATE[0])
    snapshot = whole.fragment.offer_snapshot()
    assert snapshot is not None
    assert snapshot.punctuation == 22
    newcomer.keep(newcomer.fragment.on_snapshot(snapshot))
    assert not newcomer.fragment.waiting
    before = whole.yielded()
    for record, late in zip(history[3:], LATE[1:], strict=True):
        whole.take_in("s", record)
        newcomer.take_in("s", late)
    assert newcomer.yielded() == {key: row for key, row in whole.yielded().items() if key not in before}
    assert newcomer.yielded()
    assert newcomer.egress.complete_from == 22


def test_where_the_stream_has_ended_a_peers_snapshot_lets_it_say_so() -> None:
    whole, newcomer = Site(COUNT), Site(COUNT)
    history = log(([(3, 10), (9, 11)], 12), ([(14, 12)], 15), ([(20, 13)], END))
    for record in history:
        whole.take_in("s", record)
    newcomer.take_in("s", log(([(20, 13)], END), complete_from=15)[0])
    assert newcomer.fragment.waiting
    snapshot = whole.fragment.offer_snapshot()
    assert snapshot is not None
    newcomer.keep(newcomer.fragment.on_snapshot(snapshot))
    assert newcomer.yielded() == {}
    assert (newcomer.egress.complete_from, newcomer.egress.durable) == (20, END)


def test_a_snapshot_from_before_its_input_begins_is_of_no_use() -> None:
    whole, newcomer = Site(COUNT), Site(COUNT)
    whole.take_in("s", log(([(3, 10)], 12))[0])
    snapshot = whole.fragment.offer_snapshot()
    assert snapshot is not None
    newcomer.take_in("s", LATE[0])
    newcomer.keep(newcomer.fragment.on_snapshot(snapshot))
    assert newcomer.fragment.waiting


def test_snapshots_are_taken_at_the_interval_and_the_last_is_kept() -> None:
    site = Site(COUNT)
    for record in log(([(1, 1)], 5), ([(7, 2)], 6), ([(12, 3)], 11), ([(20, 4)], 16)):
        site.take_in("s", record)
    first, records = site.disk.read("snapshot/o")
    assert (first, [r.punctuation for r in records]) == (2, [16])


def test_a_state_too_large_for_a_record_is_told_and_its_input_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(COUNT)
    monkeypatch.setattr(site.fragment, "_settings", Settings(snapshot_interval=5, message_bytes=10))
    effects = site.take_in("s", log(([(1, 1)], 50))[0])
    (event,) = reported(effects)
    assert isinstance(event, Oversized)
    assert (event.operator, event.at) == ("o", "here")
    assert site.disk.read("snapshot/o") == (0, ())
    assert site.fragment.needed_of("s", here=False) == BEGINNING
    assert site.fragment.offer_snapshot() is None


def test_what_a_count_needs_is_bounded_by_its_last_durable_snapshot() -> None:
    site = Site(COUNT)
    site.egress.on_needed("app", 100)
    assert site.fragment.needed_of("s", here=False) == BEGINNING
    site.take_in("s", log(([(1, 1)], 50))[0])
    assert site.fragment.needed_of("s", here=False) == 50


def test_what_a_window_needs_reaches_back_its_length() -> None:
    site = Site(OPERATORS[4])
    site.take_in("s", log(([(41, 1)], 40))[0])
    site.egress.on_needed("app", 30)
    assert site.fragment.needed_of("s", here=False) == 20
    assert site.fragment.needed_of("s", here=True) == 20
    site.egress.on_needed("app", 70)
    assert site.fragment.needed_of("s", here=False) == 60, "if all is lost here, its consumer needs no more"
    assert site.fragment.needed_of("s", here=True) == 30, "to go on where its own log ends"


def test_an_input_that_is_no_fragments_end_is_not_needed() -> None:
    assert Site(OPERATORS[0]).fragment.needed_of("elsewhere", here=True) == END


def test_nothing_counts_before_the_log_has_been_read_back() -> None:
    site = Site(OPERATORS[0])
    site.fragment.missing.add("s")
    assert site.fragment.on_record("s", 0, LATE[0]) == []
