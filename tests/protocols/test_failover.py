"""A producer and the entry points of its source, in every interleaving.

Whatever is lost, sent twice or delayed, whoever crashes in between: every entry point shows every tuple once,
with one id and one timestamp.
"""

import random
from collections import deque

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pieces import COLUMNS, SECOND, contents

from anabranch.graph import Source
from anabranch.protocols.effects import Append, Drop, Effect, ReadLog, Report, Send, SetTimer, Trim
from anabranch.protocols.egress import Egress
from anabranch.protocols.entry import EntryPoint
from anabranch.protocols.events import Degraded, Event, Gap
from anabranch.protocols.identity import Identify
from anabranch.protocols.messages import Accepted, CatchUp, CaughtUp, Mirror, Mirrored, Resend, Submit
from anabranch.protocols.producer import Producer
from anabranch.protocols.records import Record
from anabranch.protocols.settings import Settings
from anabranch.sim.disk import Disk
from anabranch.streams.batch import TIMESTAMP
from anabranch.streams.punctuation import END

STEP = SECOND // 10
TROUBLE = 120
"""Steps."""


class World:
    """Entry points and a producer over links that keep order and lose what they like. Disks take their time:
    of what they have not written yet, a crash takes some along."""

    def __init__(self, seed: int, points: int, mirrors: int, clocked: bool, patient: bool) -> None:
        self.random = random.Random(seed)
        self.now = 0
        self.names = tuple("abc"[:points])
        self.mirrors = mirrors
        self.source = Source("s", COLUMNS, "entry" if clocked else "source", 0 if clocked else SECOND)
        self.settings = Settings(mirror_patience=10**12) if patient else Settings()
        self.disks = {name: Disk() for name in self.names}
        self.writing: dict[str, deque[Effect]] = {name: deque() for name in self.names}
        self.entries: dict[str, EntryPoint] = {}
        self.links: dict[tuple[str, str], deque[object]] = {}
        self.events: list[Event] = []
        self.shown: list[tuple[str, Record]] = []
        """Whatever stood in a log that is read downstream, even if that log was lost later."""
        self.lives = 0
        self.producer = Producer(self.source, "p", self.names, (), self.settings)
        self.do("p", self.producer.start(0))
        for name in self.names:
            self.boot(name)
        self.offered = 0
        self.loss = 0.0

    def boot(self, name: str) -> None:
        self.lives += 1
        egress = Egress("s", name, self.settings, self.lives)
        entry = EntryPoint(self.source, Identify(self.source), egress, (), self.settings, self.lives)
        entry.set_peers(tuple(n for n in self.names if n != name), self.mirrors)
        self.entries[name] = entry
        read = self.disks[name].read
        self.do(name, entry.recover(self.now, read("out/s"), read("held/s"), read("late/s")))

    def crash(self, name: str, keep_log: bool) -> None:
        del self.entries[name]
        for _ in range(self.random.randrange(len(self.writing[name]) + 1)):
            self.write(name, tell=False)
        self.writing[name].clear()
        if not keep_log:
            self.disks[name] = Disk()

    def do(self, actor: str, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, message):
                    self.links.setdefault((actor, to), deque()).append(message)
                case Append() | Trim() | ReadLog():
                    self.writing[actor].append(effect)
                case Report(event):
                    self.events.append(event)
                case SetTimer() | Drop():
                    pass

    def write(self, name: str, tell: bool = True) -> None:
        """The disk of a site does the next thing it was asked for."""
        effect = self.writing[name].popleft()
        disk = self.disks[name]
        match effect:
            case Append(stream, position, record):
                assert disk.stream(stream).end == position
                disk.stream(stream).append(record)
                if stream == "out/s":
                    self.shown.append((name, record))
                if tell and stream != "late/s":
                    entry = self.entries[name]
                    durable = entry.on_durable if stream == "out/s" else entry.on_held
                    self.do(name, durable(record))
            case Trim(stream, keep):
                disk.stream(stream).trim(keep)
            case ReadLog(stream, (_, _, peer, known, stock)) if tell:
                records = disk.read(stream)[1]
                self.do(name, self.entries[name].answer_catch_up(peer, known, stock, records))

    def deliver(self, link: tuple[str, str]) -> None:
        sender, to = link
        message = (
            self.links[link].popleft()
            if self.random.random() > 0.1 * (self.loss > 0)
            else self.links[link][0]
        )
        if self.random.random() < self.loss:
            return
        if to == "p":
            if isinstance(message, Accepted):
                self.producer.on_accepted(self.now, message)
            elif isinstance(message, Resend):
                self.do("p", self.producer.on_resend(self.now, sender, message))
            return
        if to not in self.entries:
            return
        entry = self.entries[to]
        match message:
            case Submit():
                self.do(to, entry.on_submit(self.now, sender, message))
            case Mirror():
                self.do(to, entry.on_mirror(self.now, sender, message))
            case Mirrored():
                self.do(to, entry.on_mirrored(self.now, sender, message))
            case CatchUp():
                self.do(to, entry.on_catch_up(sender, message))
            case CaughtUp():
                self.do(to, entry.on_caught_up(self.now, sender, message))

    def offer(self) -> None:
        count = self.random.randrange(1, 4)
        values = range(self.offered, self.offered + count)
        self.offered += count
        columns = {"v": pa.array(values, pa.int64())}
        if self.source.timestamps == "source":
            ts = [max(0, self.now - self.random.randrange(SECOND)) for _ in values]
            columns = {"ts": pa.array(ts, pa.int64()).view(TIMESTAMP), **columns}
        self.do("p", self.producer.offer(self.now, pa.RecordBatch.from_pydict(columns)))

    def tick(self) -> None:
        """Some time passes, and every clock shows it."""
        self.now += STEP
        if self.now % (SECOND // 2) == 0:
            self.do("p", self.producer.on_timer(self.now, "watch"))
        if self.now % SECOND:
            return
        for name, entry in self.entries.items():
            self.do(name, entry.on_tick(self.now))
            if self.source.timestamps == "entry":
                self.do(name, entry.on_timer(self.now))
        self.do("p", self.producer.on_timer(self.now, "promise"))

    def work(self, share: float) -> None:
        """Some of what can happen happens, in any order."""
        while True:
            links = [link for link, queue in self.links.items() if queue]
            disks = [name for name, queue in self.writing.items() if queue and name in self.entries]
            if (not links and not disks) or self.random.random() > share:
                return
            chosen = self.random.randrange(len(links) + len(disks))
            if chosen < len(links):
                self.deliver(links[chosen])
            else:
                self.write(disks[chosen - len(links)])

    def trouble(self, steps: int, may_lose_a_log: bool) -> None:
        self.loss = self.random.choice((0.0, 0.05, 0.3))
        down: dict[str, int] = {}
        for _ in range(steps):
            if self.random.random() < 0.4:
                self.offer()
            self.work(0.9)
            self.tick()
            if self.random.random() < 0.05 and len(down) < len(self.names):
                name = self.random.choice([n for n in self.names if n not in down])
                down[name] = self.random.randrange(1, 60)
                keep_log = not may_lose_a_log or self.random.random() < 0.5
                may_lose_a_log = may_lose_a_log and keep_log
                self.crash(name, keep_log)
            for name in list(down):
                down[name] -= 1
                if down[name] <= 0:
                    del down[name]
                    self.boot(name)
        for name in down:
            self.boot(name)

    def peace(self) -> None:
        """Nothing fails any more; the producer closes."""
        self.loss = 0.0
        self.do("p", self.producer.close(self.now))
        for _ in range(1200):
            self.work(1.0)
            self.tick()
            if self.producer.done and all(self.ended(name) for name in self.names):
                return

    def ended(self, name: str) -> bool:
        return self.entries[name].egress.durable == END

    def logs(self) -> dict[str, list[tuple[int, int]]]:
        """Of every entry point: the tuples as (timestamp, value), sorted by value."""
        found = {}
        for name in self.names:
            values = []
            for record in self.disks[name].read("out/s")[1]:
                if record.rows is not None:
                    values += zip(
                        record.rows.column(0).cast(pa.int64()).to_pylist(),
                        record.rows["v"].to_pylist(),
                        strict=True,
                    )
            found[name] = sorted(values, key=lambda row: row[1])
        return found


def check(world: World) -> None:
    assert all(world.ended(name) for name in world.names), "an entry point never hears of the end"
    logs = world.logs()
    first = logs[world.names[0]]
    for name, tuples in logs.items():
        values = [value for _, value in tuples]
        assert len(set(values)) == len(values), f"{name} shows a tuple twice"
        assert tuples == first, f"{name} differs from {world.names[0]}"
    assert [value for _, value in first] == list(range(world.offered)), "tuples are lost"
    known: dict[int, tuple[int, int]] = {}
    for name, record in world.shown:
        for ts, lo in contents(record.rows):
            assert known.setdefault(lo, (ts, lo)) == (ts, lo), f"{name} showed {lo} with another timestamp"
    promises_hold(world)


def promises_hold(world: World) -> None:
    """No log punctuates before it has all that any log ever has."""
    everything = {row for _, record in world.shown for row in contents(record.rows)}
    for name in world.names:
        seen: set[tuple[int, int]] = set()
        for record in world.disks[name].read("out/s")[1]:
            seen |= set(contents(record.rows))
            behind = {row for row in everything - seen if row[0] <= record.punctuation}
            assert not behind, f"{name} punctuates {record.punctuation} and lacks {sorted(behind)}"


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([(1, 0), (2, 0), (2, 1), (3, 1), (3, 2)]))
def test_nothing_is_lost_or_shown_twice_while_logs_survive(seed: int, points: tuple[int, int]) -> None:
    world = World(seed, *points, clocked=False, patient=False)
    world.trouble(TROUBLE, may_lose_a_log=False)
    world.peace()
    check(world)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([(2, 1), (3, 1), (3, 2)]))
def test_a_lost_log_loses_nothing_that_a_peer_holds(seed: int, points: tuple[int, int]) -> None:
    world = World(seed, *points, clocked=False, patient=True)
    world.trouble(TROUBLE, may_lose_a_log=True)
    world.peace()
    assert not [event for event in world.events if isinstance(event, Gap | Degraded)]
    check(world)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([(1, 0, False), (2, 1, False), (3, 1, False), (3, 1, True)]))
def test_a_clock_gives_each_tuple_one_timestamp_everywhere(seed: int, points: tuple[int, int, bool]) -> None:
    *counts, may_lose_a_log = points
    world = World(seed, *counts, clocked=True, patient=False)
    world.trouble(TROUBLE, may_lose_a_log)
    world.peace()
    check(world)
