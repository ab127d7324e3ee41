"""A live producer: brings tuples to the entry points of a source, and keeps them until they are safe."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pyarrow as pa

from anabranch.input_tables import InputError, arriving
from anabranch.protocols.effects import SetTimer
from anabranch.protocols.messages import Accepted, Message, Resend
from anabranch.protocols.producer import Producer as Protocol
from anabranch.site.client import Client
from anabranch.site.clock import Clock
from anabranch.site.config import ConfigError, Deployment
from anabranch.site.journal import Journal
from anabranch.site.screen import MESSAGE_MOST
from anabranch.streams.batch import cut

SUBMIT_BYTES = 1 << 20
SUBMIT_ROWS = 50_000
"""Of one message."""
TUPLE_MOST = MESSAGE_MOST - 1024
"""Bytes of one tuple."""
UNSAFE_MOST = 16 << 20
"""Bytes that may wait to be safe before ``send`` waits too."""


class Producer:
    """Brings tuples to ``source``. Use it as an asynchronous context: at its end no more tuples come, ever,
    and it waits until all are safe.

    ``name`` and the number of each tuple make the tuple's id: a producer that starts over with an old name
    must send the same tuples again. ``arrived`` is for replays: up to when, on the tuples' own time line,
    they have come.
    """

    def __init__(
        self,
        deployment: Deployment,
        source: str,
        name: str | None = None,
        entries: tuple[str, ...] | None = None,
        arrived: Callable[[], int] | None = None,
        journal: Journal | None = None,
    ) -> None:
        found = [each for each in deployment.graph.sources if each.name == source]
        if not found:
            known = [each.name for each in deployment.graph.sources]
            raise ConfigError(
                f"producer of {source!r}: query {deployment.graph.name!r} has no such source; it has {known}"
            )
        self.source = found[0]
        self.name = name or source
        self.late = 0
        self._entries = entries or deployment.plan.entries[source]
        slides = deployment.graph.slides(source)
        self._protocol = Protocol(self.source, self.name, self._entries, slides, deployment.settings)
        self._clock = Clock()
        self._arrived = arrived or self._clock
        self._client = Client(
            deployment,
            f"producer/{self.name}",
            {SetTimer: self._set_timer},
            self._hear,
            journal or Journal(),
        )
        self._news = asyncio.Event()

    async def __aenter__(self) -> Producer:
        self.start()
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            await self.close()
        else:
            await self._client.close()

    def start(self) -> None:
        self._client.talk_to(self._entries)
        self._client.executor.do(self._protocol.start, self._clock())

    async def send(self, rows: pa.Table | pa.RecordBatch, arrived: int | None = None) -> None:
        """``ts``, if the source gives timestamps, and the declared columns. Returns once there is room for
        more; the tuples are kept until they are safe."""
        for batch in self._batches(rows):
            await self._until(lambda: self._protocol.unsafe < UNSAFE_MOST)
            at = self._arrived() if arrived is None else arrived
            self._client.executor.do(self._protocol.offer, self._clock(), batch, at)
        self._client.check()

    async def flush(self) -> None:
        """Returns once all that was sent is safe."""
        await self._until(lambda: self._protocol.unsafe == 0)

    async def close(self) -> None:
        """No more tuples, ever. Returns once all are safe."""
        try:
            if not self._protocol.closed:
                self._client.executor.do(self._protocol.close, self._clock())
            await self._until(lambda: self._protocol.done)
        finally:
            await self._client.close()

    async def abandon(self) -> None:
        """As a crash does: what is not safe may be lost, and the stream does not end."""
        await self._client.close()

    def _batches(self, rows: pa.Table | pa.RecordBatch) -> list[pa.RecordBatch]:
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        table = arriving(self.source, table, f"producer {self.name!r} of source {self.source.name!r}")
        batches = table.combine_chunks().to_batches(max_chunksize=SUBMIT_ROWS)
        pieces = [piece for batch in batches if batch.num_rows for piece in cut(batch, SUBMIT_BYTES)]
        largest = max((int(piece.nbytes) for piece in pieces), default=0)
        if largest > TUPLE_MOST:
            raise InputError(
                f"producer {self.name!r} of source {self.source.name!r}: a tuple takes {largest} bytes, "
                f"at most {TUPLE_MOST} go; keep what is larger elsewhere and send where it is"
            )
        return pieces

    async def _until(self, ready: Callable[[], bool]) -> None:
        while not ready():
            self._client.check()
            self._news.clear()
            news = [asyncio.create_task(each.wait()) for each in (self._news, self._client.failed)]
            try:
                await asyncio.wait(news, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in news:
                    task.cancel()

    def _set_timer(self, effect: SetTimer) -> None:
        self._client.executor.after(effect.after, self._on_timer, effect.key)

    def _on_timer(self, key: str) -> None:
        self._client.executor.do(self._protocol.on_timer, self._clock(), key, self._arrived())

    def _hear(self, sender: str, message: Message) -> None:
        executor, now = self._client.executor, self._clock()
        if isinstance(message, Accepted):
            executor.do(self._protocol.on_accepted, now, message)
            self._news.set()
        elif isinstance(message, Resend):
            executor.do(self._protocol.on_resend, now, sender, message)
