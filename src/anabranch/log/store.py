"""A site's own log: the effects Append, Trim, Drop and ReadLog, done on the site's server.

What is asked of one stream is done in order; what waits is appended in one atomic batch. An append says at
which position it must land, so a repetition lands once, and a second writer is noticed.

A server that goes away is waited for, and what was on its way is settled when it is back. A server that comes
back with less than it had acknowledged has lost its disk: then this life of the agent is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections import deque
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from anabranch.log import names
from anabranch.log.codec import decode, encode
from anabranch.log.connection import FAILURES, Access, Connection, connect
from anabranch.log.reading import PATIENCE, Unreadable, call, extent, read
from anabranch.log.tasks import end
from anabranch.protocols.effects import Append, Drop, ReadLog, Trim
from anabranch.protocols.records import Record

Operation = Append | Trim | Drop | ReadLog
Log = tuple[int, tuple[Record, ...]]

_BATCH = 200
"""Appends at once."""
_RETRY = 0.2


class LogLost(RuntimeError):
    """The log is not what this agent has written: it must begin a new life."""


class TooLarge(RuntimeError):
    """A record that the log server cannot take, now or ever."""


class SiteLog:
    """``appended`` and ``was_read`` are told when an effect is done; ``failed`` when the log is lost."""

    def __init__(
        self,
        access: Access,
        query: str,
        site: str,
        schema_of: Callable[[str], pa.Schema | None],
        appended: Callable[[Append], None],
        was_read: Callable[[ReadLog, Log], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._access = access
        self._query = query
        self._site = site
        self._schema_of = schema_of
        self._appended = appended
        self._was_read = was_read
        self._failed = failed
        self._streams: dict[str, _Worker] = {}
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()

    def do(self, operation: Operation) -> None:
        worker = self._streams.get(operation.stream)
        if worker is None:
            worker = self._streams[operation.stream] = _Worker(self, operation.stream)
        worker.do(operation)

    @property
    def site(self) -> str:
        return self._site

    @property
    def waiting(self) -> int:
        """Operations not done yet."""
        return sum(len(worker.queue) for worker in self._streams.values())

    async def connection(self) -> Connection:
        """To the site's own server; waits as long as there is none."""
        async with self._connecting:
            while self._connection is None or not self._connection.alive:
                with contextlib.suppress(*FAILURES):
                    self._connection = await connect(self._access, f"{self._site} log", lambda: None)
                    break
                await asyncio.sleep(_RETRY)
            return self._connection

    async def close(self) -> None:
        await end(*(worker.task for worker in self._streams.values()))
        if self._connection is not None:
            await self._connection.close()

    # --- what the workers use

    def done(self, append: Append) -> None:
        self._appended(append)

    def answer(self, question: ReadLog, log: Log) -> None:
        self._was_read(question, log)

    def fail(self, error: BaseException) -> None:
        self._failed(error)

    def decode(self, stream: str, data: bytes) -> Record:
        return decode(data, self._schema_of(stream), f"{stream} at {self._site}")

    def names(self, stream: str) -> tuple[str, str]:
        return names.stream(self._query, stream), names.subject(self._query, stream)


class _Worker:
    """What is asked of one stream, in order."""

    def __init__(self, log: SiteLog, stream: str) -> None:
        self.log = log
        self.stream = stream
        self.name, self.subject = log.names(stream)
        self.queue: deque[Operation] = deque()
        self.exists = False
        self._news = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    def do(self, operation: Operation) -> None:
        self.queue.append(operation)
        self._news.set()

    async def _run(self) -> None:
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                while self.queue:
                    await self._next()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.log.fail(error)

    async def _next(self) -> None:
        """The first operation, or as many appends as there are in front; again and again, until it works."""
        while True:
            connection = await self.log.connection()
            try:
                match self.queue[0]:
                    case Append():
                        await self._append(connection)
                    case Trim() as trim:
                        await self._trim(connection, trim)
                    case Drop():
                        await call(connection.client, f"STREAM.DELETE.{self.name}")
                        self.exists = False
                        self.queue.popleft()
                    case ReadLog() as question:
                        log = await self._read(connection)
                        self.queue.popleft()
                        self.log.answer(question, log)
                return
            except FAILURES:
                await asyncio.sleep(_RETRY)

    # --- appending

    async def _append(self, connection: Connection) -> None:
        appends: list[Append] = []
        for operation in self.queue:
            if not isinstance(operation, Append) or len(appends) == _BATCH:
                break
            appends.append(operation)
        if not self.exists:
            await self._create(connection)
        data = [encode(append.record) for append in appends]
        largest = max(map(len, data))
        if largest > connection.client.max_payload:
            raise TooLarge(
                f"{self.stream} at {self.log.site}: a record of {largest} bytes, and the log server takes "
                f"{connection.client.max_payload}; are single tuples as large as that?"
            )
        try:
            landed = await self._publish(connection, appends[0].position, data)
        except NoRespondersError:
            self.exists = landed = False
        if not landed:
            appends = appends[: await self._landed(connection, appends)]
        for append in appends:
            self.queue.popleft()
            self.log.done(append)

    async def _create(self, connection: Connection) -> None:
        answer = await call(
            connection.client,
            f"STREAM.CREATE.{self.name}",
            {
                "name": self.name,
                "subjects": [self.subject],
                "storage": "file",
                "retention": "limits",
                "discard": "new",
                "num_replicas": 1,
                "allow_direct": True,
                "allow_atomic": True,
                "deny_delete": True,
                "duplicate_window": 100_000_000,
                "max_consumers": -1,
                "max_msgs": -1,
                "max_bytes": -1,
                "max_age": 0,
            },
        )
        if "error" in answer and answer["error"].get("err_code") != 10058:
            raise LogLost(f"{self.stream}: the log server does not take it: {answer['error']}")
        self.exists = True

    async def _publish(self, connection: Connection, position: int, data: list[bytes]) -> bool:
        """Whether all have landed, at ``position`` and behind it; if not, some or none may have."""
        client = connection.client
        expected = {"Nats-Expected-Last-Sequence": str(position)}
        if len(data) == 1:
            reply = await client.request(self.subject, data[0], timeout=PATIENCE, headers=expected)
        else:
            batch = secrets.token_hex(8)
            for number, each in enumerate(data, 1):
                headers = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
                if number == 1:
                    headers |= expected
                if number < len(data):
                    await client.publish(self.subject, each, headers=headers)
            headers["Nats-Batch-Commit"] = "1"
            reply = await client.request(self.subject, data[-1], timeout=PATIENCE, headers=headers)
        answer: dict[str, Any] = json.loads(reply.data)
        error = answer.get("error")
        if error is None:
            return bool(answer["seq"] == position + len(data))
        if error.get("err_code") in (10071, 10164) or error.get("code") == 400:
            return False
        raise Unreadable(f"{self.stream}: {error.get('description')}")

    async def _landed(self, connection: Connection, appends: list[Append]) -> int:
        """How many of ``appends`` are in the log, after an answer that leaves it open."""
        found = await extent(connection.client, self.name)
        position = appends[0].position
        end = 0 if found is None else found[1]
        if end < position or end > position + len(appends):
            raise LogLost(
                f"{self.stream} ends at {end}, and this agent has written it to {position}: the disk was "
                "lost, or somebody else writes here"
            )
        async for at, data in read(connection.client, self.name, position, end):
            record = self.log.decode(self.stream, data)
            if record.generation != appends[at - position].record.generation:
                raise LogLost(
                    f"{self.stream}: somebody else has written position {at}; one agent a site, please"
                )
        return end - position

    # --- the rest

    async def _trim(self, connection: Connection, trim: Trim) -> None:
        """The last record always stays; of several trims in a row the last one counts."""
        keep = trim.keep
        count = 0
        for operation in self.queue:
            if not isinstance(operation, Trim):
                break
            keep = max(keep, operation.keep)
            count += 1
        found = await extent(connection.client, self.name)
        if found is not None and found[0] < min(keep, found[1] - 1):
            await call(connection.client, f"STREAM.PURGE.{self.name}", {"seq": min(keep, found[1] - 1) + 1})
        for _ in range(count):
            self.queue.popleft()

    async def _read(self, connection: Connection) -> Log:
        found = await extent(connection.client, self.name)
        self.exists = found is not None
        if found is None:
            return 0, ()
        first, end = found
        records: list[Record] = []
        async for position, data in read(connection.client, self.name, first, end):
            if position != first + len(records):
                raise LogLost(f"{self.stream}: position {first + len(records)} is missing in the log")
            records.append(self.log.decode(self.stream, data))
        if len(records) != end - first:
            raise NatsError
        return first, tuple(records)
