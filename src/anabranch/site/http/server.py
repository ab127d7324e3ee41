"""Listens, and keeps clients from taking more than their share: connections, headers, time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from anabranch.site.http.settings import Http
from anabranch.site.journal import Journal

_KEEP_ALIVE = 15
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\nretry-after: 1\r\n"
    b"connection: close\r\n\r\nthere are too many connections; try again later\n"
)
_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n\r\n"
    b"the request did not come in time; send it at once\n"
)

Application = Callable[..., Any]


class Refusals:
    """What was refused, by why: counted, and written down unless there are too many."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._window = (0, 0)

    def __call__(self, why: str, sentence: str, client: str = "") -> None:
        self._journal.count("http_refused", why=why)
        self._journal.count("events", event="Refused")
        second = int(asyncio.get_running_loop().time())
        count = self._window[1] if self._window[0] == second else 0
        self._window = second, count + 1
        if count < 10:
            self._journal.write("Refused", why=why, reason=sentence, client=client)


class _Connection(H11Protocol):  # type: ignore[misc]
    """One client. It must have sent a whole request head in time, and no more of it than allowed."""

    def __init__(self, settings: Http, refuse: Refusals, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._settings = settings
        self._refuse = refuse
        self._head: asyncio.TimerHandle | None = None
        self._turned_away = False
        self.app_state = {"abort": self.abort}

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self._settings.connections:
            self._refuse("connections", "there are too many connections", self._who())
            self._turned_away = True
            self._head = self.loop.call_later(1.0, self.abort)
            return
        self._expect()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._turned_away:
            # Not before it has spoken: it would see a reset instead of the answer.
            self.transport.write(_FULL)
            self.transport.close()
            return
        requests = self.cycle
        super().data_received(data)
        if self.cycle is not requests:
            self._arrived()

    def on_response_complete(self) -> None:
        before = self.cycle
        super().on_response_complete()
        if self.cycle is before and not self.transport.is_closing():
            self._expect()

    def timeout_keep_alive_handler(self) -> None:
        self._arrived()
        super().timeout_keep_alive_handler()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self._arrived()
        self._refuse("malformed", "the request is no HTTP/1.1, or its head is too long", self._who())
        super().send_400_response(msg)

    def abort(self) -> None:
        self.transport.abort()

    def _who(self) -> str:
        return f"{self.client[0]}:{self.client[1]}" if self.client else ""

    def _expect(self) -> None:
        self._arrived()
        self._head = self.loop.call_later(
            max(self._settings.header_timeout, _KEEP_ALIVE if self.cycle else 0), self._too_slow
        )

    def _arrived(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _too_slow(self) -> None:
        self._head = None
        if self.transport.is_closing():
            return
        self._refuse("slow head", "a request's head did not come in time", self._who())
        self.transport.write(_SLOW)
        self.transport.close()


class HttpServer:
    """Serves ``app`` (ASGI) on this event loop."""

    def __init__(self, settings: Http, app: Application, refuse: Refusals) -> None:
        settings.check()
        self._settings = settings
        self._refuse = refuse
        self._config = uvicorn.Config(
            app,
            http=H11Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_keep_alive=_KEEP_ALIVE,
            h11_max_incomplete_event_size=settings.header_bytes,
        )
        self._config.load()
        self._state = ServerState()
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        """The port, if 0 was asked for."""
        loop = asyncio.get_running_loop()

        def connection() -> _Connection:
            return _Connection(self._settings, self._refuse, self._config, self._state, {}, loop)

        self._server = await loop.create_server(
            connection, self._settings.host, self._settings.port, backlog=min(128, self._settings.connections)
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Requests that are being answered have a second to end."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        tasks = list(self._state.tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in list(self._state.connections):
            connection.abort()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self._server.wait_closed()
