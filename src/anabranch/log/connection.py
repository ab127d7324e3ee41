"""A connection to a log server that either works or is lost, and never hangs in between.

The client library's own reconnecting can wait for ever on a connection whose other end is gone and which has
bytes left to send. So it is switched off: a watchdog asks for a sign of life, and what does not give it is
cut. Who holds the connection decides what to do next.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.errors import Error as NatsError

SIGN_OF_LIFE = 1.5
"""Seconds between two questions, and how long an answer may take."""

FAILURES = (NatsError, OSError, EOFError, asyncio.TimeoutError, ValueError)
"""What a connection that breaks or never comes about raises."""


class Access(msgspec.Struct, frozen=True):
    """Where a server is and who asks. ``tls``: for servers on other hosts."""

    url: str
    user: str | None = None
    password: str | None = None
    tls: ssl.SSLContext | None = None
    inbox: str = "_INBOX"


class Connection:
    """``lost`` is called once, when it is gone for good."""

    def __init__(self, client: Client, lost: Callable[[], None]) -> None:
        self.client = client
        self._lost: Callable[[], None] | None = lost
        self._watch = asyncio.create_task(self._watchdog())

    @property
    def alive(self) -> bool:
        return self._lost is not None and self.client.is_connected

    async def _watchdog(self) -> None:
        with contextlib.suppress(*FAILURES):
            while not self.client.is_closed:
                await asyncio.sleep(SIGN_OF_LIFE)
                await self.client.flush(timeout=2 * SIGN_OF_LIFE)
        self._gone()
        await _end(self.client)

    def _gone(self) -> None:
        lost, self._lost = self._lost, None
        if lost is not None:
            lost()

    async def close(self) -> None:
        """Without ``lost`` being called."""
        self._lost = None
        self._watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._watch
        await _end(self.client)


async def _end(client: Client) -> None:
    """Cuts the transport, unsent bytes or not, and clears up behind it."""
    writer = getattr(getattr(client, "_transport", None), "_io_writer", None)
    transport = getattr(writer, "transport", None)
    if transport is not None:
        transport.abort()
    with contextlib.suppress(*FAILURES):
        await asyncio.wait_for(client.close(), 1.0)
    await asyncio.sleep(0)


async def connect(
    access: Access,
    name: str,
    lost: Callable[[], None],
    refused: Callable[[str], None] | None = None,
    patience: float = 3.0,
) -> Connection:
    """Raises one of ``FAILURES`` if there is no server. ``refused`` hears what the server does not permit."""

    async def on_error(error: Exception) -> None:
        if refused is not None and "ermission" in str(error):
            refused(str(error))

    options: dict[str, Any] = {}
    if access.user is not None:
        options |= {"user": access.user, "password": access.password}
    if access.tls is not None:
        options |= {"tls": access.tls}
    client = Client()
    try:
        await asyncio.wait_for(
            client.connect(
                access.url,
                name=name,
                allow_reconnect=False,
                connect_timeout=max(1, round(patience)),
                error_cb=on_error,
                ping_interval=3600,
                pending_size=64 << 20,
                inbox_prefix=access.inbox,
                **options,
            ),
            patience + 1.0,
        )
    except BaseException:
        await _end(client)
        raise
    return Connection(client, lost)
