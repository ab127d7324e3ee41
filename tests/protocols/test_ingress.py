"""The ingress log: the append is the commit, a crash changes nothing, trimming keeps what is needed."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from pieces import append, appended, batch, contents, log, opened, reported

from anabranch.protocols.effects import Trim
from anabranch.protocols.events import Trimmed
from anabranch.protocols.ingress import Arrival, Ingress
from anabranch.protocols.records import Record, Writer
from anabranch.protocols.settings import Settings
from anabranch.sim.disk import Stream
from anabranch.streams.punctuation import BEGINNING, END

SETTINGS = Settings()


def upstream(generation: int, tuples: list[tuple[int, int]], shuffled: random.Random) -> Stream:
    """A replica's log: the same tuples as every other's, in an order and in records of its own."""
    stream, writer = Stream(), Writer("out/s", generation)
    writer.complete_from = BEGINNING
    left = list(tuples)
    shuffled.shuffle(left)
    while left:
        count = shuffled.randrange(1, 4)
        taken, left = left[:count], left[count:]
        punctuation = min((ts for ts, _ in left), default=END) - 1
        stream.append(append(writer, taken, max(punctuation, writer.punctuation)))
    stream.append(append(writer, [], END))
    return stream


class Site:
    """One ingress over two replicas' logs; it crashes when told to."""

    def __init__(self, logs: dict[str, Stream]) -> None:
        self.logs = logs
        self.disk = Stream()
        self.life = 0
        self.start()

    def start(self) -> None:
        self.life += 1
        self.ingress = Ingress("s", "here", SETTINGS, self.life, 0)
        self.ingress.recover(0, self.disk.first, tuple(self.disk.records))
        self.sending: dict[str, int] = {}
        self.waiting: list[Arrival] = []
        self.open(opened(self.ingress.connect(0, tuple(self.logs))))

    def open(self, requests: list) -> None:
        for request in requests:
            position, resumed = self.logs[request.source].resume(request)
            self.ingress.rejoin.opened(0, request.source, position, resumed)
            self.sending[request.source] = position

    def receive(self, source: str, skip: int = 0, together: bool = False) -> None:
        """``together``: it waits for the next one, to be taken in with it."""
        position = self.sending[source] + skip
        stream = self.logs[source]
        if position >= stream.end:
            return
        self.sending[source] = position + 1
        self.waiting.append((source, position, stream.records[position - stream.first]))
        if not together:
            self.take()

    def take(self) -> None:
        waiting, self.waiting = self.waiting, []
        effects = self.ingress.on_records(0, waiting)
        for effect in appended(effects):
            assert effect.position == self.disk.end
            self.disk.append(effect.record)
            self.ingress.on_durable(effect.record)
        self.open(opened(effects))


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 25))
def test_whatever_happens_each_tuple_is_taken_in_once(seed: int, count: int) -> None:
    dice = random.Random(seed)
    tuples = [(dice.randrange(40), number) for number in range(count)]
    site = Site({name: upstream(i + 1, tuples, dice) for i, name in enumerate("ab")})
    for _ in range(40):
        what = dice.random()
        source = dice.choice("ab")
        if what < 0.75:
            site.receive(source, together=dice.random() < 0.5)
        elif what < 0.82:
            site.receive(source, skip=1)
        elif what < 0.88:
            site.sending[source] = max(0, site.sending[source] - 2)
        else:
            site.disk.lose_tail(dice.choice((0, 0, 1, 3, 100)))
            site.start()
    site.take()
    for name in "ab":
        site.open(site.ingress.rejoin.reset(0, name))
    while any(site.sending[name] < site.logs[name].end for name in "ab"):
        for name in "ab":
            site.receive(name)
    taken = [row for record in site.disk.records for row in contents(record.rows)]
    assert sorted(taken) == sorted(tuples)
    assert site.disk.records[-1].punctuation == END
    seen: set[tuple[int, int]] = set()
    for record in site.disk.records:
        seen |= set(contents(record.rows))
        assert {row for row in tuples if row[0] <= record.punctuation} <= seen, "it promised too much"


def test_what_came_together_is_one_record_with_the_last_punctuation() -> None:
    site = Site({"a": upstream(1, [(ts, ts) for ts in range(9)], random.Random(0))})
    while site.sending["a"] < site.logs["a"].end:
        site.receive("a", together=True)
    site.take()
    (record,) = site.disk.records
    assert len(contents(record.rows)) == 9
    assert (record.punctuation, record.cursors[0].position) == (END, site.logs["a"].end)


def test_after_a_crash_branches_go_on_where_they_were_read() -> None:
    site = Site({"a": upstream(1, [(10, 1), (20, 2), (30, 3)], random.Random(0))})
    site.receive("a")
    before = site.sending["a"]
    site.start()
    assert site.sending["a"] == before


def ingress_of(records: tuple[Record, ...]) -> Ingress:
    ingress = Ingress("s", "here", SETTINGS, 2, 0)
    ingress.recover(0, 0, records)
    return ingress


RECORDS = log(([(10, 1)], 9), ([(20, 2)], 19), ([(30, 3)], 29), ([(40, 4)], 39))


def test_trimming_keeps_what_is_needed() -> None:
    ingress = ingress_of(RECORDS)
    assert ingress.trim(9, 1000) == []
    assert ingress.trim(25, 1000) == [Trim("in/s", 2)]
    assert ingress.trim(25, 1000) == []


def test_the_last_record_always_stays() -> None:
    assert ingress_of(RECORDS).trim(END, 1000) == [Trim("in/s", 3)]


def test_what_the_engine_has_not_read_stays_also_where_it_has_no_tuples() -> None:
    ingress = ingress_of(log(([], BEGINNING), ([], 5), ([(10, 1)], 9), ([(20, 2)], 19), ([(30, 3)], 29)))
    assert ingress.trim(BEGINNING, 1000, 0) == []
    assert ingress.trim(19, 1000, 1) == [Trim("in/s", 1)]
    assert ingress.trim(19, 1000, 4) == [Trim("in/s", 3)]


def test_what_retention_takes_from_those_who_need_it_is_reported() -> None:
    effects = ingress_of(RECORDS).trim(BEGINNING, 10)
    assert [effect for effect in effects if isinstance(effect, Trim)] == [Trim("in/s", 2)]
    assert reported(effects) == [Trimmed("s", "here", 20, ("fragment",))]


def test_an_append_says_how_far_every_branch_was_read() -> None:
    ingress = Ingress("s", "here", SETTINGS, 7, 0)
    ingress.connect(0, ("a", "b"))
    ingress.rejoin.opened(0, "a", 4, False)
    (effect,) = appended(ingress.on_record(0, "a", 4, log(([(10, 1)], 5), generation=3)[0]))
    told = {cursor.source: cursor for cursor in effect.record.cursors}
    assert (told["a"].position, told["a"].generation) == (5, 3)
    assert told["b"].complete_from == END, "of b nothing has been read"
    assert contents(effect.record.rows) == contents(batch((10, 1)))
