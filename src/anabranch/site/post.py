"""Messages between nodes. They may be lost: what cannot be sent soon is dropped, and the protocols say it
again.

A node has one line to every site that it talks to, and hears what is said to it over these: a site on its own
server, a client on those of all the sites it has lines to.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine

from nats.aio.msg import Msg

from anabranch.log.connection import FAILURES, Access, Connection, connect
from anabranch.site.backoff import Backoff
from anabranch.site.journal import Journal
from anabranch.site.tasks import end

Hear = Callable[[Msg], Coroutine[None, None, None]]

MOST = 64 << 20
"""Bytes that wait for a line, at most."""
_AHEAD = 1 << 20
"""Bytes that are sent before it is known that those before them have arrived."""


class Line:
    """To the server of ``site``; ``hears``: what is done with messages on which subjects there."""

    def __init__(
        self, site: str, name: str, access: Callable[[str], Access], hears: dict[str, Hear], journal: Journal
    ) -> None:
        self.site = site
        self.connected = False
        self._name = name
        self._access = access
        self._hears = hears
        self._journal = journal
        self._queue: deque[tuple[str, bytes]] = deque()
        self._waiting = 0
        self._news = asyncio.Event()
        self._session: asyncio.Task[None] | None = None
        self._backoff = Backoff()
        self._task = asyncio.create_task(self._run())

    def send(self, subject: str, data: bytes) -> None:
        if self._waiting + len(data) > MOST:
            self._journal.count("messages_dropped", peer=self.site)
            return
        self._queue.append((subject, data))
        self._waiting += len(data)
        self._news.set()

    async def _run(self) -> None:
        while True:
            try:
                connection = await connect(self._access(self.site), f"{self._name} post", self._on_lost)
            except FAILURES:
                self._drop()
                await asyncio.sleep(self._backoff.pause())
                continue
            self._session = asyncio.create_task(self._talk(connection))
            try:
                await asyncio.wait({self._session})
            finally:
                self.connected = False
                await end(self._session)
                await connection.close()
            self._drop()
            await asyncio.sleep(self._backoff.pause())

    def _on_lost(self) -> None:
        self.connected = False
        if self._session is not None:
            self._session.cancel()

    def _drop(self) -> None:
        if self._queue:
            self._journal.count("messages_dropped", len(self._queue), peer=self.site)
        self._queue.clear()
        self._waiting = 0

    async def _talk(self, connection: Connection) -> None:
        try:
            for subject, hear in self._hears.items():
                await connection.client.subscribe(
                    subject, cb=hear, pending_msgs_limit=0, pending_bytes_limit=MOST
                )
            await connection.client.flush(timeout=5)
            self.connected = True
            self._backoff.reset()
            ahead = 0
            while connection.alive:
                await self._news.wait()
                self._news.clear()
                while self._queue:
                    subject, data = self._queue.popleft()
                    self._waiting -= len(data)
                    if len(data) > connection.client.max_payload:
                        self._journal.count("messages_dropped", peer=self.site)
                        self._journal.write("message too large", peer=self.site, bytes=len(data))
                        continue
                    await connection.client.publish(subject, data)
                    ahead += len(data)
                    if ahead > _AHEAD:
                        await connection.client.flush(timeout=60)
                        ahead = 0
        except FAILURES as error:
            self._journal.write("line broke", peer=self.site, error=str(error) or type(error).__name__)

    async def close(self) -> None:
        await end(self._task)
