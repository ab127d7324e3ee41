"""Results cut into pieces of whole timestamps, for sinks that keep what they are given."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pyarrow as pa

from anabranch.site.subscription import Receiver
from anabranch.streams.batch import TS, Batch, timestamps
from anabranch.streams.punctuation import BEGINNING, END

Write = Callable[[pa.Table, int], Awaitable[None]]
"""Keeps rows, ``ts`` first, ids and columns behind; all up to a timestamp, and behind that of the call
before."""


class Cutting:
    """Of what ``receiver`` brings, in order, a piece every ``every`` seconds, or earlier when ``rows`` wait.
    The sites are told what ``write`` has kept when it returns."""

    def __init__(self, receiver: Receiver, every: float, rows: int, write: Write) -> None:
        self._receiver = receiver
        self._every = every
        self._most = rows
        self._keep = write
        self._waiting: list[Batch] = []
        self._rows = 0
        self._cursor = BEGINNING

    async def run(self) -> None:
        """Until the stream ends and all of it is written."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._every
        while True:
            taken = None
            try:
                async with asyncio.timeout_at(due):
                    taken = await self._receiver.take()
            except TimeoutError:
                due = loop.time() + self._every
                await self._flush()
                continue
            if taken is None:
                break
            batch, self._cursor = taken
            self._waiting.append(batch)
            self._rows += batch.num_rows
            if self._rows >= self._most:
                await self._flush()
        if self._rows:
            await self._write(int(timestamps(self._waiting[-1])[-1]))

    async def _flush(self) -> None:
        """All that waits is at or before the cursor, and nothing else will be."""
        if self._rows:
            last = int(timestamps(self._waiting[-1])[-1])
            await self._write(self._cursor if self._cursor < END else last)
            self._receiver.keep(self._cursor)
        elif self._receiver.idle:
            self._receiver.keep(self._receiver.punctuation)

    async def _write(self, until: int) -> None:
        table = pa.Table.from_batches(self._waiting)
        await self._keep(
            table.rename_columns(["ts" if name == TS else name for name in table.column_names]), until
        )
        self._waiting, self._rows = [], 0
