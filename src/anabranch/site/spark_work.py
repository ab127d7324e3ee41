"""What a site's Spark driver does besides fragments: it reads sources and writes to sinks of the site.

Each of them works through a channel of its own: it says what the driver is to do, and hears what comes of it.
When the driver ends, all of them hear that; each begins again by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from anabranch.engines.spark import run as driver
from anabranch.engines.spark.orders import Delivered
from anabranch.log import handover
from anabranch.log.codec import Malformed
from anabranch.site.journal import Journal
from anabranch.streams.batch import Batch

MOST_STAGED = 1 << 30
"""Bytes of a batch that is not whole yet."""


SOURCE, SINK = "source ", "sink "
"""How channels are called, before the name of what they are for. No fragment is called so."""


class DriverGone(RuntimeError):
    """What the driver was asked to do is not done: it failed, or ended; the sentence says why."""


class Brought(NamedTuple):
    """A batch that a source has brought, whole: the rows of each task, in the order of the tasks."""

    run: str
    batch: int
    tasks: list[list[Batch]]


class SparkWork:
    """Of one site. ``say`` speaks to the driver, ``answer`` to whoever waits for a reply."""

    def __init__(
        self,
        say: Callable[[driver.Command], None],
        answer: Callable[[str, bytes], None],
        journal: Journal,
    ) -> None:
        self.say = say
        self.answer = answer
        self.journal = journal
        self.ready = asyncio.Event()
        self._channels: dict[str, Channel] = {}

    def open(self, name: str, schema: pa.Schema | None = None) -> Channel:
        """``schema``: of the rows that it brings, if it does. To be used as a context."""
        channel = self._channels[name] = Channel(self, name, schema)
        return channel

    def close(self, channel: Channel) -> None:
        if self._channels.get(channel.name) is channel:
            del self._channels[channel.name]

    def on_event(self, event: driver.Event) -> bool:
        """Whether it is of a source or a sink, and not of a fragment."""
        if isinstance(event, driver.Ready):
            self.ready.set()
        if isinstance(event, driver.Ready | driver.Refused):
            return False
        channel = self._channels.get(event.fragment)
        if channel is not None:
            channel.on_event(event)
        return event.fragment.startswith((SOURCE, SINK))

    def on_gone(self) -> None:
        self.ready.clear()
        for channel in self._channels.values():
            channel.fail("the Spark driver has ended")

    def on_handover(self, data: bytes, reply: str) -> None:
        try:
            message = handover.decode(data)
            channel = self._channels.get(message.fragment)
            if channel is None:
                raise Malformed(f"nobody here reads {message.fragment[:80]!r}")
            channel.on_handover(message, reply)
        except Malformed as error:
            self.journal.count("handovers_refused")
            self.answer(reply, str(error).encode())


class Channel:
    def __init__(self, work: SparkWork, name: str, schema: pa.Schema | None) -> None:
        self.name = name
        self._work = work
        self._schema = schema
        self._heard: asyncio.Queue[driver.Event | Brought | str] = asyncio.Queue()
        self._run = ""
        self._staged: dict[str, dict[int, Batch]] = {}
        self._bytes = 0
        self._batch = -1
        self._taking: list[str] | None = None
        """Who waits for the batch that is being taken to be safe."""
        self._safe = -1

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        # A query that waited for an answer would not stop.
        for reply in self._taking or ():
            self._work.answer(reply, f"{self.name} is not read any more".encode())
        self._work.close(self)
        self._work.say(driver.Stop(self.name))

    async def say(self, command: driver.Command) -> None:
        """As soon as there is a driver."""
        await self._work.ready.wait()
        self._work.say(command)

    async def started(self) -> driver.Started:
        heard = await self._next()
        assert isinstance(heard, driver.Started)
        self._run = heard.run
        self._work.journal.write("query started", name=self.name, resumed=heard.resumed, why=heard.reason)
        return heard

    async def brought(self) -> Brought:
        """The next batch; to be answered with :meth:`safe`."""
        heard = await self._next()
        assert isinstance(heard, Brought)
        return heard

    async def delivered(self) -> int:
        """The number of a batch that is written."""
        heard = await self._next()
        assert isinstance(heard, Delivered)
        return heard.batch

    def safe(self) -> None:
        """All that was brought last is: it need not be brought again."""
        for reply in self._taking or ():
            self._work.answer(reply, handover.OK)
        self._taking, self._safe = None, self._batch

    async def _next(self) -> driver.Event | Brought:
        heard = await self._heard.get()
        if isinstance(heard, str):
            raise DriverGone(heard)
        return heard

    # --- what happens

    def on_event(self, event: driver.Event) -> None:
        match event:
            case driver.Progress():
                self._work.journal.count("engine_batches", event.batches, fragment=self.name)
                self._work.journal.count("engine_rows", event.rows, fragment=self.name)
            case driver.Failed():
                self.fail(event.reason)
            case driver.Started() | Delivered():
                self._heard.put_nowait(event)

    def fail(self, reason: str) -> None:
        self._heard.put_nowait(reason)

    def on_handover(self, message: handover.Handover, reply: str) -> None:
        # The driver says that a run has started before anything of it comes, but on another way.
        if self._run and message.run != self._run:
            raise Malformed(f"run {message.run} of {self.name} is not the one that runs here")
        match message:
            case handover.Piece():
                self._stage(message)
                self._work.answer(reply, handover.OK)
            case handover.Done():
                self._on_done(message, reply)
            case handover.Poison():
                raise Malformed(f"{self.name} runs no code of the query")

    def _stage(self, piece: handover.Piece) -> None:
        if piece.batch != self._batch and self._taking is None:
            # What is left of an earlier batch was of attempts that do not count.
            self._batch, self._staged, self._bytes = piece.batch, {}, 0
        if self._schema is None or piece.batch != self._batch:
            raise Malformed(f"{self.name}: a piece of batch {piece.batch}, which is not the next one here")
        if self._bytes + len(piece.rows) > MOST_STAGED:
            raise Malformed(
                f"{self.name}: a batch of more than {MOST_STAGED >> 20} MiB; make batches smaller by the "
                "source's options, such as maxFilesPerTrigger or maxOffsetsPerTrigger"
            )
        self._bytes += len(piece.rows)
        self._staged.setdefault(piece.task, {})[piece.number] = handover.rows_of(piece, self._schema)

    def _on_done(self, done: handover.Done, reply: str) -> None:
        if self._taking is not None:
            if done.batch != self._batch:
                raise Malformed(f"{self.name}: batch {done.batch} comes before batch {self._batch} is safe")
            self._taking.append(reply)
            return
        if done.batch == self._safe:
            # The answer was lost.
            self._work.answer(reply, handover.OK)
            return
        tasks = []
        for task, count in sorted(done.pieces.items(), key=lambda each: int(each[0].partition(".")[0])):
            pieces = self._staged.get(task, {})
            missing = [number for number in range(count) if number not in pieces]
            if missing or done.batch != self._batch:
                raise Malformed(f"{self.name}: a piece of task {task} of batch {done.batch} has not come")
            tasks.append([pieces[number] for number in range(count)])
        self._batch, self._staged, self._bytes = done.batch, {}, 0
        self._taking = [reply]
        self._heard.put_nowait(Brought(done.run, done.batch, tasks))
