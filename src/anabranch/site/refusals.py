"""What the site's log server has refused, from the lines it writes about it.

A server tells nobody else: not whoever it refused, beyond the connection's end, and not the site.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from anabranch.site.journal import Journal

_EVERY = 0.5
_MOST = 1 << 20
"""Bytes that are looked at in one go, and of a line that does not end."""
_WRITTEN = 10
"""Refusals that are written down, each time; the rest is only counted."""

_SIGNS = (
    ("i/o timeout", "slow"),
    ("TLS handshake error", "handshake"),
    ("authentication error", "identity"),
    ("Authorization Violation", "identity"),
    ("Authentication Timeout", "slow"),
    ("Publish Violation", "publish"),
    ("Subscription Violation", "subscribe"),
    ("aximum payload", "oversized"),
    ("aximum Payload", "oversized"),
    ("maximum control line", "malformed"),
    ("parser ERROR", "malformed"),
)


_NOTHING = ("Client connection closed", "connection reset by peer")
"""Said a second time, and by who only looks whether the server is there."""


def kind(line: str) -> str | None:
    """What a line of the server says was refused; None: it is about something else.

    >>> kind('[ERR] 10.0.0.7:5 - cid:5 - Publish Violation - Subject "log.q.in.load"')
    'publish'
    """
    if " - " not in line or any(sign in line for sign in _NOTHING):
        return None
    return next((name for sign, name in _SIGNS if sign in line), None)


class Refusals:
    """Counts them as ``refused`` by ``why``, as long as it is open."""

    def __init__(self, log: Path, journal: Journal) -> None:
        self._log = log
        self._journal = journal
        self._position = log.stat().st_size if log.exists() else 0
        self._rest = b""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                while self._read():
                    await asyncio.sleep(0)
            except OSError as error:
                self._journal.write("refusals not read", error=str(error))
            await asyncio.sleep(_EVERY)

    def _read(self) -> bool:
        """What has come since; whether there is more."""
        if not self._log.exists():
            return False
        if self._log.stat().st_size < self._position:
            self._position, self._rest = 0, b""
        with self._log.open("rb") as file:
            file.seek(self._position)
            data = file.read(_MOST)
        self._position += len(data)
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[-_MOST:]
        written = 0
        for line in lines:
            text = line.decode("utf-8", "replace")
            why = kind(text)
            if why is None:
                continue
            self._journal.count("refused", why=why)
            written += 1
            if written <= _WRITTEN:
                self._journal.write("refused", why=why, line=text[:500])
        return len(data) == _MOST
