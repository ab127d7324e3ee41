"""``POST /sources/NAME``: tuples come in, and are answered when they are safe."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from anabranch.graph import Source
from anabranch.input_tables import InputError
from anabranch.plan import Plan
from anabranch.site.http.answers import Refused, json
from anabranch.site.http.bodies import ARROW, NDJSON, from_arrow, from_ndjson
from anabranch.site.http.clients import Client, Clients
from anabranch.site.http.headers import content_kind, read_headers, unnumbered
from anabranch.site.http.settings import Http
from anabranch.site.intake import Intake, Lane
from anabranch.site.journal import Journal
from anabranch.streams.batch import Batch
from anabranch.streams.punctuation import BEGINNING, END

T = TypeVar("T")


class Posting:
    """Takes requests for the sources of a query. ``plan`` gives the plan of now."""

    def __init__(
        self,
        settings: Http,
        sources: tuple[Source, ...],
        plan: Callable[[], Plan],
        clients: Clients,
        intake: Intake,
        journal: Journal,
    ) -> None:
        self._settings = settings
        self._sources = {source.name: source for source in sources}
        self._plan = plan
        self._clients = clients
        self._intake = intake
        self._journal = journal

    async def __call__(self, request: Request) -> Response:
        name = request.path_params["name"]
        source = self._sources.get(name)
        if source is None:
            known = ", ".join(self._sources)
            raise Refused(404, "unknown", f"there is no source {name[:80]!r}; the sources are {known}")
        if self._intake.unsafe > self._settings.unsafe_bytes:
            raise Refused(503, "busy", "too many tuples wait to be acknowledged; send this again later")
        kind = content_kind(request)
        work = _Work(self, request, source)
        if request.query_params.get("stream", "") not in ("", "0", "1"):
            raise Refused(400, "parameter", "stream is 1, or is not there")
        if request.query_params.get("stream") == "1":
            if kind not in NDJSON:
                raise Refused(415, "type", "a body that is a stream is JSON lines; send no stream=1")
            return await work.stream()
        return await work.whole(kind)

    @property
    def settings(self) -> Http:
        return self._settings

    async def lane(self, source: Source, client: Client | None, first: int | None, turn: int) -> Lane:
        if client is None:
            return await self._clients.nameless(source, self._plan())
        return await client.at(first, turn)

    def client(self, source: Source, name: str) -> Client:
        return self._clients.client(source, name, self._plan())

    def took(self, source: Source, rows: int) -> None:
        self._journal.count("http_rows", rows, source=source.name)


class _Work:
    """One request."""

    def __init__(self, posting: Posting, request: Request, source: Source) -> None:
        self._posting = posting
        self._settings = posting.settings
        self._request = request
        self._source = source
        self._where = f"source {source.name!r}"
        told = self._told = read_headers(request)
        self._client = None if told.producer is None else posting.client(source, told.producer)

    # --- a body as a whole: all of it, or nothing

    async def whole(self, kind: str) -> Response:
        body = await self._body()
        try:
            if kind in ARROW:
                rows = from_arrow(body, self._source, self._settings.body_rows, self._where)
            else:
                rows = self._lines(body, 0)
        except InputError as error:
            raise Refused(400, "rows", str(error), taken=0) from None
        return await self._within(self._take_whole(rows))

    def _lines(self, data: bytes, before: int) -> Batch | None:
        if data.count(b"\n") > self._settings.body_rows:
            raise InputError(
                f"{self._where}: more than {self._settings.body_rows} rows at once; send several requests"
            )
        where = self._where if before == 0 else f"{self._where}, behind row {before}"
        return from_ndjson(data, self._source, where)

    async def _body(self) -> bytes:
        most = self._settings.body_bytes
        too_long = Refused(
            413, "size", f"a body has at most {most} bytes; send several requests, or stream=1"
        )
        length = self._request.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > most:
            raise too_long
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._settings.body_timeout):
                async for part in self._request.stream():
                    parts.append(part)
                    size += len(part)
                    if size > most:
                        raise too_long
        except TimeoutError:
            slow = f"the body did not come within {self._settings.body_timeout:g} s; send it at once"
            raise Refused(408, "slow body", slow) from None
        return b"".join(parts)

    async def _take_whole(self, rows: Batch | None) -> Response:
        told = self._told
        if self._client is None:
            lane = await self._posting.lane(self._source, None, None, 0)
            new = await self._offer(lane, rows, None)
            await lane.safe()
            return json(200, {"taken": new})
        if rows is not None and told.first is None:
            raise unnumbered()
        async with self._client.busy:
            lane = await self._posting.lane(self._source, self._client, told.first, told.turn)
            new = await self._offer(lane, rows, told.first)
            if rows is None and told.promise is not None:
                lane.tell(told.promise)
            if told.end:
                lane.end()
            await lane.safe()
            self._client.note()
            count = 0 if rows is None else rows.num_rows
            return json(200, {"taken": new, "repeated": count - new, "next": lane.next})

    async def _offer(self, lane: Lane, rows: Batch | None, first: int | None) -> int:
        """How many of the rows, which begin with number ``first``, have not been taken before."""
        if rows is None:
            return 0
        taken: int = 0 if first is None else min(lane.next - first, rows.num_rows)
        if taken == rows.num_rows:
            return 0
        if lane.promise == END:
            ended = f"client {lane.name!r} has ended; go on under another name"
            raise Refused(409, "ended", ended, next=lane.next)
        promise = BEGINNING if self._told.promise is None else self._told.promise
        await lane.bring(rows, promise, taken)
        new: int = rows.num_rows - taken
        self._posting.took(self._source, new)
        return new

    async def _within(self, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._settings.answer_timeout):
                return await work
        except TimeoutError:
            how = "the same again: it counts once" if self._client else "it again, if it may count twice"
            late = f"the tuples were not acknowledged in time; send {how}"
            raise Refused(503, "not acknowledged", late) from None

    # --- a body as a stream: what came before a mistake is taken

    async def stream(self) -> Response:
        if self._client is None:
            return await self._streamed()
        if self._told.first is None:
            raise unnumbered()
        async with self._client.busy:
            return await self._streamed()

    async def _streamed(self) -> Response:
        first, count, new = self._told.first, 0, 0
        lane = await self._within(self._posting.lane(self._source, self._client, first, self._told.turn))
        mistake: Refused | None = None
        try:
            async for lines in self._complete_lines():
                rows = self._lines(lines, count)
                number = None if first is None else first + count
                new += await self._within(self._offer(lane, rows, number))
                count += 0 if rows is None else rows.num_rows
        except InputError as error:
            mistake = Refused(400, "rows", str(error))
        except Refused as refused:
            mistake = refused
        if self._told.end and mistake is None:
            lane.end()
        await self._within(lane.safe())
        answered: dict[str, int] = {"taken": new}
        if self._client is not None:
            self._client.note()
            answered |= {"repeated": count - new, "next": lane.next}
        if mistake is not None:
            raise Refused(mistake.status, mistake.why, mistake.sentence, **answered)
        return json(200, answered)

    async def _complete_lines(self) -> AsyncIterator[bytes]:
        rest = b""
        body = self._request.stream()
        deadline = _now() + self._settings.body_timeout
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    part = await anext(body)
            except (StopAsyncIteration, ClientDisconnect):
                # Of a client that is gone, what came as whole lines counts.
                break
            except TimeoutError:
                raise Refused(408, "slow body", "no line came in time; close a stream that rests") from None
            lines, newline, tail = (rest + part).rpartition(b"\n")
            if newline:
                yield lines
                deadline = _now() + self._settings.body_timeout
            rest = tail
            if len(rest) > self._settings.body_bytes:
                raise Refused(413, "size", f"a line has at most {self._settings.body_bytes} bytes")
        if rest and not await self._request.is_disconnected():
            yield rest


def _now() -> float:
    return asyncio.get_running_loop().time()
