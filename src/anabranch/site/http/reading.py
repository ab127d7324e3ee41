"""``GET /outputs/NAME``: results leave, each once, as server-sent events, JSON lines or an Arrow stream.

With ``order=timestamp`` tuples come in order behind the punctuation. Then the *cursor* that comes with them
is exact: a reader that comes back with it receives what follows, nothing missing, nothing twice. Without,
tuples come as early as they can, and those beyond the cursor come again; ``_id`` tells which.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import msgspec
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from anabranch.protocols.events import Gap
from anabranch.site.as_json import instant, objects
from anabranch.site.http.settings import Http
from anabranch.site.journal import Journal
from anabranch.site.subscription import Receiver
from anabranch.streams.batch import TS, Batch
from anabranch.streams.punctuation import BEGINNING, END

_IDLE = 1.0
"""Seconds without a tuple after which a reader is told how far the stream is."""
_PIECE = 2000
"""Tuples that are written at once."""


class Form(Protocol):
    """How tuples are written."""

    kind: str

    def begin(self) -> bytes: ...
    def tuples(self, rows: Batch, cursor: int | None) -> bytes: ...
    def cursor(self, cursor: int) -> bytes: ...
    def gap(self, gap: Gap) -> bytes: ...
    def end(self) -> bytes: ...


class Events:
    """Server-sent events: one a tuple; the id, on the last one of several, is the cursor."""

    kind = "text/event-stream"

    def begin(self) -> bytes:
        return b": tuples follow\n\n"

    def tuples(self, rows: Batch, cursor: int | None) -> bytes:
        *before, last = objects(rows)
        written = b"".join(b"data: " + line + b"\n\n" for line in before)
        return written + (b"" if cursor is None else b"id: %d\n" % cursor) + b"data: " + last + b"\n\n"

    def cursor(self, cursor: int) -> bytes:
        return b"id: %d\n\n" % cursor

    def gap(self, gap: Gap) -> bytes:
        return b"event: gap\ndata: " + msgspec.json.encode(_gap(gap)) + b"\n\n"

    def end(self) -> bytes:
        return b"event: end\ndata: {}\n\n"


class Lines:
    """JSON lines; those whose one key begins with an underscore are no tuples."""

    kind = "application/x-ndjson"

    def begin(self) -> bytes:
        return b""

    def tuples(self, rows: Batch, cursor: int | None) -> bytes:
        written = b"\n".join(objects(rows)) + b"\n"
        return written if cursor is None else written + self.cursor(cursor)

    def cursor(self, cursor: int) -> bytes:
        return b'{"_cursor":%d}\n' % cursor

    def gap(self, gap: Gap) -> bytes:
        return msgspec.json.encode({"_gap": _gap(gap)}) + b"\n"

    def end(self) -> bytes:
        return b'{"_end":true}\n'


class Arrow:
    """An Arrow stream: ``ts``, ``_hi``, ``_lo`` and the columns. Cursors and gaps are metadata of batches."""

    kind = "application/vnd.apache.arrow.stream"

    def __init__(self, schema: pa.Schema) -> None:
        names = ["ts" if name == TS else name for name in schema.names]
        self._schema = pa.schema([field.with_name(name) for name, field in zip(names, schema, strict=True)])
        self._sink = _Sink()
        self._writer: Any = None

    def begin(self) -> bytes:
        self._writer = pa.ipc.new_stream(self._sink, self._schema)
        return self._sink.take()

    def tuples(self, rows: Batch, cursor: int | None) -> bytes:
        metadata = None if cursor is None else {"cursor": str(cursor)}
        return self._write(rows.columns, metadata)

    def cursor(self, cursor: int) -> bytes:
        return self._write(None, {"cursor": str(cursor)})

    def gap(self, gap: Gap) -> bytes:
        return self._write(None, {"gap": msgspec.json.encode(_gap(gap)).decode()})

    def end(self) -> bytes:
        self._writer.close()
        return self._sink.take()

    def _write(self, columns: list[pa.Array] | None, metadata: dict[str, str] | None) -> bytes:
        columns = [pa.array([], field.type) for field in self._schema] if columns is None else columns
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self._writer.write_batch(batch, custom_metadata=metadata)
        return self._sink.take()


class _Sink:
    """What pyarrow writes into."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def take(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


def form_of(accept: str, schema: pa.Schema) -> Form | None:
    """The first form that a client accepts; None if it accepts none."""
    for part in accept.split(","):
        kind = part.partition(";")[0].strip().lower()
        if kind in ("*/*", "application/*", Lines.kind, "application/jsonl", ""):
            return Lines()
        if kind in (Events.kind, "text/*"):
            return Events()
        if kind == Arrow.kind:
            return Arrow(schema)
    return None


def _gap(gap: Gap) -> dict[str, str | None]:
    """Tuples with later timestamps than ``after``, up to ``until``, may be missing."""
    known = [None if time in (BEGINNING, END) else instant(time) for time in (gap.after, gap.until)]
    return {"after": known[0], "until": known[1]}


class Stream(Response):
    """What one reader is sent."""

    def __init__(
        self,
        request: Request,
        receiver: Receiver,
        form: Form,
        settings: Http,
        journal: Journal,
        over: Callable[[], None],
    ) -> None:
        super().__init__(None, 200, {"cache-control": "no-store", "x-accel-buffering": "no"}, form.kind)
        del self.headers["content-length"]
        self._request = request
        self._receiver = receiver
        self._form = form
        self._settings = settings
        self._journal = journal
        self._over = over

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        writing = asyncio.create_task(self._write(send))
        gone = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait([writing, gone], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (writing, gone):
                task.cancel()
            await asyncio.gather(writing, gone, return_exceptions=True)
            await self._receiver.close()
            self._over()
        if not writing.cancelled() and (failure := writing.exception()) is not None:
            raise failure

    async def _write(self, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            await self._put(send, self._form.begin())
            self._receiver.start()
            await self._tuples(send)
            await self._put(send, self._form.end(), more=False)
        except TimeoutError:
            self._journal.count("events", event="SlowReader")
            self._journal.count("http_slow_readers")
            self._journal.write(
                "SlowReader",
                reader=self._receiver.name,
                path=self._request.url.path,
                reason=f"it took nothing for {self._settings.reader_timeout:g} s and was disconnected",
            )
            self._request.state.abort()

    async def _tuples(self, send: Any) -> None:
        told = BEGINNING
        while True:
            taken = rows = None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_IDLE):
                    taken = await self._receiver.take()
                    if taken is None:
                        return
                    rows, cursor = taken
            for gap in self._gaps():
                await self._put(send, self._form.gap(gap))
            if rows is None:
                if not self._receiver.idle:
                    continue
                cursor = self._receiver.punctuation
            known = cursor if told < cursor < END else None
            told = max(told, cursor)
            if rows is not None:
                for piece, last in _pieces(rows):
                    await self._put(send, self._form.tuples(piece, known if last else None))
            elif known is not None:
                await self._put(send, self._form.cursor(known))

    def _gaps(self) -> list[Gap]:
        gaps, self._receiver.gaps = self._receiver.gaps, []
        return gaps

    async def _put(self, send: Callable[[dict[str, Any]], Any], data: bytes, more: bool = True) -> None:
        async with asyncio.timeout(self._settings.reader_timeout):
            await send({"type": "http.response.body", "body": data, "more_body": more})


def _pieces(rows: Batch) -> Iterator[tuple[Batch, bool]]:
    for first in range(0, rows.num_rows, _PIECE):
        yield rows.slice(first, _PIECE), first + _PIECE >= rows.num_rows


async def _gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
