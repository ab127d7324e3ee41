"""Where a branch begins in the log of its source: exactly where it left off, if that is still the same log;
else where it is complete from what the consumer has.

As :meth:`anabranch.sim.disk.Stream.resume`, with single reads over the network.
"""

from __future__ import annotations

import msgspec
import pyarrow as pa
from nats.aio.client import Client

from anabranch.log.codec import decode
from anabranch.log.reading import extent, read_one
from anabranch.protocols.effects import OpenBranch
from anabranch.protocols.records import Record


class Moved(Exception):
    """The log was trimmed while it was looked at: look again."""


class Start(msgspec.Struct, frozen=True):
    """``exists``: whether there is a log at all."""

    position: int
    resumed: bool
    exists: bool = True


async def start(
    client: Client,
    name: str,
    schema: pa.Schema | None,
    where: str,
    branch: OpenBranch,
    gate: str | None = None,
) -> Start:
    """``name`` is the JetStream stream; ``where`` says whose it is, for whoever reads a refusal; ``gate`` is
    that of :class:`anabranch.log.connection.Access`."""
    found = await extent(client, name, gate)
    if found is None:
        return Start(0, False, exists=False)
    log = _Log(client, name, schema, where, *found)
    if branch.position is not None and await log.knows(branch.position, branch.generation):
        return Start(branch.position, True)
    return Start(await log.complete_from(branch.complete_from), False)


class _Log:
    """A stream with records from ``first`` to before ``end``."""

    def __init__(
        self, client: Client, name: str, schema: pa.Schema | None, where: str, first: int, end: int
    ) -> None:
        self._client = client
        self._name = name
        self._schema = schema
        self._where = where
        self._first = first
        self._end = end

    async def _record(self, position: int) -> Record:
        data = await read_one(self._client, self._name, position)
        if data is None:
            raise Moved
        return decode(data, self._schema, self._where)

    async def knows(self, position: int, generation: int) -> bool:
        """Whether the record before ``position`` is of ``generation``."""
        if not self._first <= position <= self._end:
            return False
        if position > self._first:
            return (await self._record(position - 1)).generation == generation
        return position < self._end and (await self._record(position)).previous == generation

    async def complete_from(self, timestamp: int) -> int:
        """The last position whose record has ``high`` <= ``timestamp``, or the first there is. ``high`` never
        decreases."""
        low, high = self._first, self._end - 1
        if low >= high or (await self._record(high)).high <= timestamp:
            return max(low, high)
        while high - low > 1:
            middle = (low + high) // 2
            if (await self._record(middle)).high <= timestamp:
                low = middle
            else:
                high = middle
        return low
