"""Many producers at one place over one line to each site: those of an HTTP endpoint, or the files of a
directory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from anabranch.graph import Source
from anabranch.protocols.effects import Effect, Send, SetTimer
from anabranch.protocols.messages import Accepted, Ask, Message, Resend
from anabranch.protocols.producer import Producer
from anabranch.site.client import Client
from anabranch.site.clock import Clock
from anabranch.site.config import Deployment
from anabranch.site.executor import Executor
from anabranch.site.journal import Journal
from anabranch.streams.batch import Batch, ints
from anabranch.streams.lateness import pieces, promises
from anabranch.streams.punctuation import BEGINNING

SUBMIT_BYTES = 1 << 20
SUBMIT_ROWS = 50_000
"""Of one message."""
UNSAFE_MOST = 8 << 20
"""Bytes of one producer that may wait to be safe before it takes no more."""
_HELLO = 0.5
LATEST = 1 << 62
"""Beyond all attempts."""


class Lane:
    """One producer of an intake. Unless it goes ``by_clock`` it promises what it is told."""

    def __init__(
        self,
        intake: Intake,
        source: Source,
        name: str,
        entries: tuple[str, ...],
        attempt: int = 0,
        by_clock: bool = False,
    ) -> None:
        self.source = source
        self.name = name
        self.answers: dict[str, Accepted] = {}
        """The last of each entry point."""
        self._intake = intake
        self._entries = entries
        self._by_clock = by_clock
        slides = intake.deployment.graph.slides(source.name)
        self._protocol = Producer(
            source, name, entries, slides, intake.deployment.settings, attempt, not by_clock
        )
        self._executor = Executor({Send: intake.send, SetTimer: self._set_timer}, intake.fail)
        self._news = asyncio.Event()

    @property
    def next(self) -> int:
        """The number of the next tuple."""
        return self._protocol.next

    @property
    def promise(self) -> int:
        return self._protocol.promise

    @property
    def high(self) -> int:
        return self._protocol.high

    @property
    def unsafe(self) -> int:
        return self._protocol.unsafe

    @property
    def is_safe(self) -> bool:
        """All that was offered, promises too."""
        return self._protocol.is_safe

    async def start(self, attempts: int = LATEST) -> Accepted | None:
        """What an entry point knows of this producer. Asks until one has told. None if it has heard of an
        attempt from ``attempts`` on: then others act in this name."""
        self._executor.do(self._protocol.start, self._clock())
        while True:
            for answer in list(self.answers.values()):
                if answer.attempt >= attempts:
                    return None
                if answer.attempt <= self._protocol.attempt:
                    return answer
                self.answers.clear()
                self._executor.do(self._protocol.take_up, answer.attempt)
            if not await self._hear_within(_HELLO):
                self._executor.do(lambda: [self._protocol.hello()])

    async def furthest(self, all: bool = False) -> Accepted | None:
        """What the entry point knows that holds most of this producer: of ``all`` of them, or of those that
        answer soon."""
        while True:
            self.answers.clear()
            for entry in self._entries:
                ask = Ask(self.source.name, self.name, self._protocol.attempt)
                self._intake.send(Send(entry, ask))
            while len(self.answers) < len(self._entries) and await self._hear_within(2 * _HELLO):
                pass
            last = max((answer.attempt for answer in self.answers.values()), default=0)
            if last > self._protocol.attempt:
                self._protocol.take_up(last)
            elif len(self.answers) == len(self._entries) or not all:
                return max(self.answers.values(), key=lambda answer: answer.until, default=None)

    def go_on(self, first: int, promise: int = BEGINNING, high: int = BEGINNING) -> None:
        self._protocol.go_on(first, promise, high)

    async def offer(self, rows: Batch, promise: int = BEGINNING) -> None:
        """Rows of one message, as soon as there is room."""
        await self._until(lambda: self._protocol.unsafe < UNSAFE_MOST)
        self._executor.do(self._offer, rows, promise)

    def _offer(self, rows: Batch, promise: int) -> list[Effect]:
        return self._protocol.offer(self._clock(), rows, promise=promise)

    async def bring(self, rows: Batch, promise: int = BEGINNING, skip: int = 0) -> None:
        """Rows in sequence, but for the first ``skip``, which have been brought before: which of them are
        late is decided by ``promise`` and the order of all, or by the clock."""
        promised = BEGINNING if self._by_clock else max(self.promise, promise)
        for first, end, told in submissions(self.source, rows, promised, self._by_clock):
            if end > skip:
                begin = max(first, skip)
                await self.offer(rows.slice(begin, end - begin), told)

    def tell(self, promise: int) -> None:
        self._executor.do(self._protocol.tell, self._clock(), promise)

    def end(self) -> None:
        """No more tuples of this producer, ever."""
        if not self._protocol.closed:
            self._executor.do(self._protocol.close, self._clock())

    async def safe(self) -> None:
        await self._until(lambda: self._protocol.is_safe)

    def drop(self) -> None:
        """What is not safe is not kept any more."""
        self._executor.end()
        self._intake.forget(self)

    def hear(self, sender: str, message: Accepted | Resend) -> None:
        if isinstance(message, Accepted):
            self.answers[sender] = message
            self._executor.do(self._protocol.on_accepted, self._clock(), message)
        else:
            self._executor.do(self._protocol.on_resend, self._clock(), sender, message)
        self._news.set()

    def wake(self) -> None:
        self._news.set()

    async def _until(self, ready: Callable[[], bool]) -> None:
        while not ready():
            self._intake.check()
            await self._hear_within(60)

    async def _hear_within(self, seconds: float) -> bool:
        self._intake.check()
        self._news.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    def _clock(self) -> int:
        return self._intake.clock()

    def _set_timer(self, effect: SetTimer) -> None:
        self._executor.after(effect.after, self._on_timer, effect.key)

    def _on_timer(self, key: str) -> None:
        self._executor.do(self._protocol.on_timer, self._clock(), key)


class Intake:
    """``name``: what the sites call this client. ``clock``: by which producers promise that go by one."""

    def __init__(
        self, deployment: Deployment, name: str, journal: Journal, clock: Callable[[], int] | None = None
    ) -> None:
        self.deployment = deployment
        self.clock = clock or Clock()
        self._client = Client(deployment, name, {}, self._hear, journal)
        self._lanes: dict[tuple[str, str], Lane] = {}

    def lane(
        self,
        source: Source,
        name: str,
        entries: tuple[str, ...],
        attempt: int = 0,
        by_clock: bool = False,
    ) -> Lane:
        """A producer of ``source``: to be started."""
        self._client.talk_to(entries)
        lane = Lane(self, source, name, entries, attempt, by_clock)
        self._lanes[source.name, name] = lane
        return lane

    def forget(self, lane: Lane) -> None:
        key = lane.source.name, lane.name
        if self._lanes.get(key) is lane:
            del self._lanes[key]

    @property
    def unsafe(self) -> int:
        """Bytes of all producers that are not known to be safe."""
        return sum(lane.unsafe for lane in self._lanes.values())

    def send(self, effect: Send) -> None:
        self._client.send(effect)

    def fail(self, error: BaseException) -> None:
        self._client.fail(error)
        for lane in self._lanes.values():
            lane.wake()

    def check(self) -> None:
        self._client.check()

    async def close(self) -> None:
        for lane in list(self._lanes.values()):
            lane.drop()
        await self._client.close()

    def _hear(self, sender: str, message: Message) -> None:
        if isinstance(message, Accepted | Resend):
            lane = self._lanes.get((message.source, message.producer))
            if lane is not None:
                lane.hear(sender, message)


def submissions(
    source: Source, rows: Batch, promised: int, by_clock: bool = False
) -> list[tuple[int, int, int]]:
    """How rows in sequence are cut into messages: first, end, and the promise that goes with each."""
    most = max(1, min(SUBMIT_ROWS, SUBMIT_BYTES * rows.num_rows // max(1, int(rows.nbytes))))
    if by_clock or source.timestamps == "entry":
        starts = range(0, rows.num_rows, most)
        return [(first, min(first + most, rows.num_rows), BEGINNING) for first in starts]
    return list(pieces(ints(rows.column(0)), source.lateness, promised, most))


def promised_behind(source: Source, rows: Batch, promised: int) -> int:
    """What can be promised behind all rows, by their own order."""
    return int(promises(ints(rows.column(0)), source.lateness, promised)[-1])
