"""Branches as a consumer reads them: each over a connection of its own to the log server of its source, so
that a stalled link stalls nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from anabranch.log import names
from anabranch.log.codec import Malformed, decode
from anabranch.log.connection import FAILURES, Access, Connection, connect
from anabranch.protocols.effects import CloseBranch, OpenBranch
from anabranch.protocols.records import Record
from anabranch.site.backoff import Backoff
from anabranch.site.journal import Journal
from anabranch.site.resume import Moved, Start, start
from anabranch.site.tail import Tail
from anabranch.site.tasks import end

POLL = 0.1
"""Seconds between two looks for a log that is not there yet; they grow to ten times that."""


class Consumer(Protocol):
    """Who reads branches. All of it is called on the event loop, and must not block."""

    def on_opened(self, stream: str, source: str, position: int, resumed: bool) -> None: ...
    def on_record(self, stream: str, source: str, position: int, record: Record) -> None: ...

    def on_reset(self, stream: str, source: str) -> None:
        """The connection of a branch that was open broke, or its log is not what it was."""

    def is_busy(self, stream: str) -> bool:
        """Whether more of ``stream`` would have to wait here. When that is over, call ``Links.go_on``."""
        ...


class Links:
    """The branches of one consumer, called ``name`` at the servers."""

    def __init__(
        self,
        name: str,
        query: str,
        access: Callable[[str], Access],
        schema_of: Callable[[str], pa.Schema | None],
        window: int,
        consumer: Consumer,
        journal: Journal,
    ) -> None:
        self.name = name
        self.query = query
        self.access = access
        self.schema_of = schema_of
        self.window = window
        self.consumer = consumer
        self.journal = journal
        self.branches: dict[tuple[str, str], _Branch] = {}

    def open(self, effect: OpenBranch) -> None:
        key = effect.stream, effect.source
        branch = self.branches.get(key)
        if branch is None:
            branch = self.branches[key] = _Branch(self, *key)
        branch.open(effect)

    def close_branch(self, effect: CloseBranch) -> None:
        branch = self.branches.pop((effect.stream, effect.source), None)
        if branch is not None:
            branch.task.cancel()

    def go_on(self, stream: str) -> None:
        """``stream`` has room again."""
        for branch in self.branches.values():
            if branch.stream == stream and branch.tail is not None:
                branch.tail.go_on()

    async def close(self) -> None:
        tasks = [branch.task for branch in self.branches.values()]
        self.branches.clear()
        await end(*tasks)


class _Branch:
    """One branch: its connection, and the task that keeps it going."""

    def __init__(self, links: Links, stream: str, source: str) -> None:
        self.links = links
        self.stream = stream
        self.source = source
        self.tail: Tail | None = None
        self.connected = False
        self._wanted: OpenBranch | None = None
        self._received = 0
        self._backoff = Backoff()
        self._connection: Connection | None = None
        self._work: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    def open(self, effect: OpenBranch) -> None:
        if effect == self._wanted or self._flows(effect):
            return
        self._wanted = effect
        self._news.set()

    def _flows(self, effect: OpenBranch) -> bool:
        """Whether bytes keep coming, of a record that is long for its link."""
        if self.tail is None or self.tail.next != effect.position or self._connection is None:
            return False
        before, self._received = self._received, self._connection.received
        return self._received > before

    # --- the task

    async def _run(self) -> None:
        try:
            while True:
                await self._news.wait()
                connection = await self._connect()
                try:
                    await self._serve(connection)
                finally:
                    self.connected = False
                    self._connection = None
                    await connection.close()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._tell("branch failed", error=repr(error))
            raise

    async def _connect(self) -> Connection:
        links = self.links
        while True:
            try:
                connection = await connect(
                    links.access(self.source), f"{links.name} {self.stream}", self._on_lost
                )
            except FAILURES as error:
                links.journal.count("branch_attempts", stream=self.stream, branch=self.source)
                self._tell("branch not connected", error=str(error) or type(error).__name__)
                await asyncio.sleep(self._backoff.pause())
                continue
            self.connected, self._connection, self._received = True, connection, 0
            return connection

    def _on_lost(self) -> None:
        self.connected = False
        if self._work is not None:
            self._work.cancel()

    async def _serve(self, connection: Connection) -> None:
        """Opens the branch again and again, as the consumer asks for it, while the connection is there."""
        while connection.alive:
            await self._news.wait()
            self._news.clear()
            wanted = self._wanted
            assert wanted is not None
            self._work = asyncio.create_task(self._carry(connection, wanted))
            asked = asyncio.create_task(self._news.wait())
            try:
                await asyncio.wait({self._work, asked}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                work, self._work = self._work, None
                await end(work, asked)
            if not work.cancelled() and (failure := work.exception()) is not None:
                raise failure
            if not connection.alive:
                self._break("the connection broke")
                return

    async def _carry(self, connection: Connection, wanted: OpenBranch) -> None:
        """Opens the branch, and hands over what it brings until it breaks."""
        try:
            found = await self._find(connection, wanted)
            await self._follow(connection, found)
        except (*FAILURES, Moved, Malformed) as error:
            if isinstance(error, Malformed):
                self.links.journal.count("malformed", stream=self.stream, branch=self.source)
            if connection.alive:
                await asyncio.sleep(self._backoff.pause())
                self._break(str(error) or type(error).__name__)

    async def _find(self, connection: Connection, wanted: OpenBranch) -> Start:
        """Where the branch starts; a log that is not there yet is waited for."""
        name = names.stream(self.links.query, f"out/{self.stream}")
        where = f"out/{self.stream} at {self.source}"
        schema = self.links.schema_of(self.stream)
        found = await start(connection.client, name, schema, where, wanted)
        if not found.exists:
            self._opened(found)
        pause = POLL
        while not found.exists:
            await asyncio.sleep(pause)
            pause = min(1.25 * pause, 10 * POLL)
            fresh = OpenBranch(self.stream, self.source, None, 0, wanted.complete_from)
            found = await start(connection.client, name, schema, where, fresh)
        return found

    async def _follow(self, connection: Connection, found: Start) -> None:
        links = self.links
        name = names.stream(links.query, f"out/{self.stream}")
        where = f"out/{self.stream} at {self.source}"
        schema = links.schema_of(self.stream)

        def take(position: int, data: bytes) -> None:
            record = decode(data, schema, where)
            links.journal.count("branch_records", stream=self.stream, branch=self.source)
            links.journal.count("branch_bytes", len(data), stream=self.stream, branch=self.source)
            self._backoff.reset()
            links.consumer.on_record(self.stream, self.source, position, record)

        tail = Tail(
            connection.client,
            name,
            found.position,
            links.window,
            take,
            lambda: links.consumer.is_busy(self.stream),
        )
        try:
            await tail.open()
            self._opened(found)
            self.tail = tail
            await tail.run()
        finally:
            self.tail = None
            if connection.alive:
                await tail.close()

    def _opened(self, found: Start) -> None:
        self._tell("branch opened", position=found.position, resumed=found.resumed)
        self.links.consumer.on_opened(self.stream, self.source, found.position, found.resumed)

    def _break(self, why: str) -> None:
        """What was asked for does not count any more: the consumer asks anew."""
        self.links.journal.count("branch_resets", stream=self.stream, branch=self.source)
        self._tell("branch broke", why=why)
        wanted, self._wanted = self._wanted, None
        self.links.consumer.on_reset(self.stream, self.source)
        if self._wanted is None:
            # Who reads it does not want it any more, or will ask later.
            self._wanted = wanted
            self._news.set()

    def _tell(self, what: str, **fields: object) -> None:
        self.links.journal.write(what, stream=self.stream, branch=self.source, **fields)
