"""A connection to a log server that either works or is lost, and never hangs in between.

The client library's own reconnecting can wait for ever on a connection whose other end is gone and which has
bytes left to send. So it is switched off: a watchdog asks for a sign of life, and what does not give it is
cut. Who holds the connection decides what to do next.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import ssl
import struct
import sys
import termios
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
from nats.aio.client import Client
from nats.errors import Error as NatsError

from anabranch.log.tasks import end

SIGN_OF_LIFE = 1.5
"""Seconds between two questions, and how long an answer may take."""

FAILURES = (NatsError, OSError, EOFError, asyncio.TimeoutError, ValueError)
"""What a connection that breaks or never comes about raises."""


class Tls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who this is, by certificate and key, and the authority that everybody here is vouched for by."""

    ca: Path
    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """Raises an OSError if the files are not there or not what they should be."""
        files = (self.ca, self.certificate, self.key)
        return _context(self, tuple(path.stat().st_mtime_ns for path in files))

    def within(self, url: str, server: str) -> str:
        """The URL of ``server`` for a process that is told of it by the URL alone."""
        files = {"ca": self.ca, "certificate": self.certificate, "key": self.key}
        return f"{url}?{urlencode({**files, 'server': server})}"


@lru_cache(maxsize=64)
def _context(tls: Tls, written: tuple[int, ...]) -> ssl.SSLContext:
    """``written``: when each file was. Renewed ones count for the next connection."""
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(tls.ca))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(str(tls.certificate), str(tls.key))
    return context


class Access(msgspec.Struct, frozen=True):
    """Where a server is and who asks. ``tls``: for servers on other hosts; the server's certificate must
    then be for ``server``, whatever its host. ``gate``: the subject on which the site there is asked for what
    only itself may do in its log; None: the server does it for whoever asks."""

    url: str
    user: str | None = None
    password: str | None = None
    tls: Tls | None = None
    server: str | None = None
    inbox: str = "_INBOX"
    gate: str | None = None


class Connection:
    """``lost`` is called once, when it is gone for good."""

    def __init__(self, lost: Callable[[], None]) -> None:
        self.client = Client()
        self._lost: Callable[[], None] | None = lost
        self._watch: asyncio.Task[None] | None = None
        self._over: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def watch(self) -> None:
        """From now on it is noticed when it breaks."""
        self._watch = asyncio.create_task(self._watchdog())

    @property
    def alive(self) -> bool:
        return self._lost is not None and self.client.is_connected

    @property
    def received(self) -> int:
        """Bytes that have come, of messages that are not whole yet too."""
        parser = getattr(self.client, "_ps", None)
        return int(self.client.stats["in_bytes"]) + len(getattr(parser, "buf", b""))

    async def _watchdog(self) -> None:
        with contextlib.suppress(*FAILURES):
            while not self.client.is_closed:
                await asyncio.sleep(SIGN_OF_LIFE)
                answer = await self._ask()
                while not answer.done():
                    before = (self.received, _unsent(self.client))
                    await asyncio.wait({answer, self._over}, timeout=2 * SIGN_OF_LIFE)
                    # An answer may have to wait behind what a slow link still carries.
                    if self._over.done() or before == (self.received, _unsent(self.client)):
                        break
                if not answer.done():
                    break
        self.gone()
        await _end(self.client)

    async def flush(self) -> None:
        """Returns once the server has got all that was sent. Raises ConnectionError if the connection is gone
        before that."""
        answer = await self._ask()
        await asyncio.wait({answer, self._over}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ConnectionError("the connection broke")

    async def _ask(self) -> asyncio.Future[Any]:
        """A ping. Its answer must not be cancelled, as the client's own ``flush`` does when it takes too
        long: the client would stop reading when it comes after all, and never say so."""
        reading = getattr(self.client, "_reading_task", None)
        if self._over.done() or reading is None or reading.done():
            raise ConnectionError("the connection broke")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        await self.client._send_ping(answer)
        return answer

    def gone(self) -> None:
        lost, self._lost = self._lost, None
        if not self._over.done():
            self._over.set_result(None)
        if lost is not None:
            lost()

    def close_quietly(self) -> None:
        self._lost = None

    def cut(self) -> None:
        """At once; :meth:`close` clears up behind it."""
        self.close_quietly()
        self.gone()
        transport = _transport(self.client)
        if transport is not None:
            transport.abort()

    async def close(self) -> None:
        """Without ``lost`` being called."""
        self.cut()
        await end(self._watch)
        await _end(self.client)


def _transport(client: Client) -> Any:
    writer = getattr(getattr(client, "_transport", None), "_io_writer", None)
    return getattr(writer, "transport", None)


def _unsent(client: Client) -> int:
    """Bytes that wait here or in the system for the other end to take them."""
    transport = _transport(client)
    if transport is None or transport.is_closing():
        return 0
    waiting = int(transport.get_write_buffer_size())
    connected = transport.get_extra_info("socket")
    if sys.platform != "linux" or connected is None:
        return waiting
    with contextlib.suppress(OSError):
        waiting += struct.unpack("i", fcntl.ioctl(connected.fileno(), termios.TIOCOUTQ, b"\0" * 4))[0]
    return waiting


async def _end(client: Client) -> None:
    """Cuts the transport, unsent bytes or not, and clears up behind it."""
    transport = _transport(client)
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

    async def on_disconnect() -> None:
        connection.gone()

    connection = Connection(lost)
    client = connection.client
    options: dict[str, Any] = {}
    if access.user is not None:
        options |= {"user": access.user, "password": access.password}
    if access.tls is not None:
        options |= {"tls": access.tls.context(), "tls_hostname": access.server}
    try:
        await asyncio.wait_for(
            client.connect(
                access.url,
                name=name,
                allow_reconnect=False,
                connect_timeout=max(1, round(patience)),
                error_cb=on_error,
                disconnected_cb=on_disconnect,
                ping_interval=3600,
                pending_size=64 << 20,
                inbox_prefix=access.inbox,
                **options,
            ),
            patience + 1.0,
        )
    except BaseException:
        connection.close_quietly()
        await _end(client)
        raise
    connection.watch()
    return connection
