"""An ingress log as a streaming source of Spark's: rows, and the punctuation behind them.

An offset is a position in the log together with the punctuation there and the generation of the record
before it. Each read yields the rows between two offsets and, last, one row that is nothing but the
punctuation at its end. A query that was restarted has forgotten what its inputs had promised, and closes
nothing before something is new: so a reader that begins calls its first offset new, if there is anything to
promise.

What the log lacks, and a record that another writer has put where one had been read, fails the query with a
sentence; the driver then looks whether to rebuild it from the log.

A batch that takes in little is read here, beside the driver, and its rows go to Spark with the plan: to start
a task in a Python worker takes far longer than to read them. What is more is read by the workers, in parts.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper

from anabranch.engines.spark.pace import Pace
from anabranch.engines.spark.times import MARK, to_mark
from anabranch.log import names
from anabranch.log.blocking import Connection, Hole, Server
from anabranch.log.codec import decode
from anabranch.log.tail import Tail, Tails
from anabranch.protocols.records import Record
from anabranch.streams.batch import TIMESTAMP, with_ids
from anabranch.streams.punctuation import BEGINNING, END
from anabranch.types import Column, arrow_schema

NAME = "anabranch"
PATIENCE = 60.0
"""Seconds for which a server that is away is waited for."""
_HURRY = 1 << 20
"""Bytes that wait for the next batch, from which on it begins at once."""
_LITTLE = 0.05
_PAUSE = 0.5


class Place(msgspec.Struct, frozen=True):
    """What a reader has to know; the one option of the source, as JSON. ``begin``: the offset of the first
    record. ``complete_from``: what the run takes the input to be complete from. ``others``: the query's other
    inputs; ``marks``: whether rows that are nothing but punctuations go along; ``waits``: whether this is the
    one that waits for news of all of them. ``taken``: a directory in which the readers of the query tell each
    other how far they have read."""

    url: str
    user: str | None
    password: str | None
    query: str
    stream: str
    columns: tuple[Column, ...]
    begin: Offset
    complete_from: int
    others: tuple[str, ...]
    marks: bool
    waits: bool
    taken: str
    batch_bytes: int
    along_bytes: int
    split_bytes: int
    trigger: float
    patience: float

    @property
    def log(self) -> str:
        return names.stream(self.query, f"in/{self.stream}")


class Offset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Between two records of the log of ``stream``. ``generation``: of the record before; None where nothing
    is known of it. ``life``: of the reader that has last told of this stream. ``bytes``: of all records that
    the run has read before."""

    stream: str
    position: int
    punctuation: int
    generation: int | None
    life: str = ""
    bytes: int = 0


class Part(InputPartition):  # type: ignore[misc]
    """Records from ``first`` to before ``end``; ``previous``: the generation of the record before, if known.
    ``mark``: the punctuation to tell behind them, as event time."""

    def __init__(self, first: int, end: int, previous: int | None, mark: int | None) -> None:
        self.first = first
        self.end = end
        self.previous = previous
        self.mark = mark


class LogSource(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return NAME

    def _place(self) -> Place:
        return msgspec.json.decode(self.options["place"], type=Place)

    def schema(self) -> str:
        place = self._place()
        return ddl(place.columns, place.marks)

    def streamReader(self, schema: Any) -> LogReader:
        return LogReader(self._place())


def ddl(columns: tuple[Column, ...], marks: bool) -> str:
    """Of what the source yields. Nothing is ``not null``: the row of a punctuation has no tuple."""
    user = "".join(f", `{column.name}` {column.type}" for column in columns)
    return f"_ts timestamp, _hi bigint, _lo bigint{user}{f', {MARK} timestamp' if marks else ''}"


class LogReader(_SimpleStreamReaderWrapper):  # type: ignore[misc]
    """Its first half works in a process beside the driver, of one for each source; ``read`` in the
    workers.

    Only the wrapper of Spark's simple readers may send rows along with the plan (``getCache``); of its own
    methods none is used.
    """

    def __init__(self, place: Place) -> None:
        super().__init__(None)
        self._place = place
        self._life = secrets.token_hex(3)
        self._tails: Tails | None = None
        self._seen: tuple[int, ...] = ()
        self._begun = 0.0
        self._pace = Pace(place.trigger)

    # --- beside the driver

    def initialOffset(self) -> dict[str, Any]:
        return _json(self._place.begin)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        """At most ``batch_bytes`` on from ``start``. The one source that waits does so until any input of the
        query has news and a batch is due; but where nothing has come, not directly after a batch, whose
        punctuation may call for another one."""
        begin = _offset(start)
        _tell(self._place, begin.position)
        try:
            return self._latest(begin)
        except (TimeoutError, ConnectionError):
            # The server is away: as long as it is, there is no news.
            self._tails = None
            time.sleep(_PAUSE)
            return start

    def _latest(self, begin: Offset) -> dict[str, Any]:
        place = self._place
        if self._tails is None:
            self._tails = Tails(Connection(place.url, place.user, place.password))
        tail = self._tails.follow(place.log, begin.position)
        self._tails.drain()
        untold = begin.life != self._life and to_mark(begin.punctuation) is not None
        if place.waits and not untold:
            self._wait(begin.position)
        end, size = begin.position, 0
        for bytes_ in () if tail is None else tail.sizes:
            if end > begin.position and size + bytes_ > place.batch_bytes:
                break
            size += bytes_
            end += 1
        if end == begin.position:
            return _json(msgspec.structs.replace(begin, life=self._life) if untold else begin)
        record = self._record(end - 1)
        punctuation = record.punctuation if record.complete_from != END else BEGINNING
        offset = Offset(
            place.stream,
            end,
            max(punctuation, begin.punctuation),
            record.generation,
            self._life,
            begin.bytes + size,
        )
        _tell(place, end)
        return _json(offset)

    def _wait(self, position: int) -> None:
        """Until any input of the query has news and a batch is due."""
        assert self._tails is not None
        others = [_told(self._place, other) for other in self._place.others]
        if None in others:
            # Another source has not begun yet.
            time.sleep(_LITTLE)
            return
        logs = [self._place.log, *(names.stream(self._place.query, f"in/{s}") for s in self._place.others)]
        state = (position, *(other for other in others if other is not None))
        if not self._news(logs, state):
            if state != self._seen:
                self._seen = state
                return
            until = time.monotonic() + self._place.patience
            while not self._news(logs, state):
                if (left := until - time.monotonic()) <= 0:
                    return
                unborn = None in self._follow(logs, state)
                self._tails.drain(min(left, _PAUSE) if unborn else left)
        self._pace.feel(psutil.cpu_percent() / 100)
        while (left := self._begun + self._pace.seconds - time.monotonic()) > 0:
            if sum(tail.bytes for tail in self._follow(logs, state) if tail) >= _HURRY:
                break
            self._tails.drain(left)
        self._begun = time.monotonic()

    def _news(self, logs: list[str], state: tuple[int, ...]) -> bool:
        tails = self._follow(logs, state)
        return any(tail and tail.end > taken for tail, taken in zip(tails, state, strict=True))

    def _follow(self, logs: list[str], state: tuple[int, ...]) -> list[Tail | None]:
        assert self._tails is not None
        return [self._tails.follow(log, taken) for log, taken in zip(logs, state, strict=True)]

    def _record(self, position: int) -> Record:
        assert self._tails is not None
        place = self._place
        ((_, data),) = self._tails.connection.read(place.log, position, position + 1)
        return decode(data, with_ids(arrow_schema(place.columns)), f"{place.log}, position {position}")

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, until = _offset(start), _offset(end)
        mark = to_mark(until.punctuation) if self._place.marks else None
        count = until.position - begin.position
        if begin == until:
            return []
        parts = self._parts(begin.position, until.position) if count else 1
        cuts = [begin.position + count * part // parts for part in range(parts + 1)]
        return [
            Part(
                a,
                b,
                begin.generation if a == begin.position else None,
                mark if b == until.position else None,
            )
            for a, b in pairwise(cuts)
        ]

    def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[pa.RecordBatch] | None:
        """The rows themselves, if they are few: asked for behind ``partitions``."""
        parts = self.partitions(start, end)
        begin, until = _offset(start).position, _offset(end).position
        size = self._size(begin, until)
        if len(parts) != 1 or size is None or size > self._place.along_bytes:
            return None
        rows: list[pa.RecordBatch] = list(self.read(parts[0]))
        # A stream that has only promised something brings no rows.
        return iter(pa.Table.from_batches(rows).combine_chunks().to_batches() if rows else rows)

    def _parts(self, first: int, end: int) -> int:
        """How many tasks shall read this: by its size if that is known, else one."""
        size = self._size(first, end) or 0
        return max(1, min(end - first, size // max(self._place.split_bytes, 1)))

    def _size(self, first: int, end: int) -> int | None:
        """Bytes of the records between; None if they have not been followed."""
        tail = None if self._tails is None else self._tails.follow(self._place.log, first)
        if tail is None or tail.end < end:
            return None
        return sum(bytes_ for _, bytes_ in zip(range(end - first), tail.sizes, strict=False))

    def commit(self, end: dict[str, Any]) -> None:
        """The agent trims, by what the egress logs hold."""

    def stop(self) -> None:
        if self._tails is not None:
            self._tails.connection.close()

    # --- in the workers

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        place = self._place
        schema = with_ids(arrow_schema(place.columns))
        previous = partition.previous
        server = Server(place.url, place.user, place.password)
        for position, data in server.read(place.log, partition.first, partition.end, PATIENCE):
            where = f"{place.log}, position {position}"
            record = decode(data, schema, where)
            if previous is not None and record.previous != previous:
                raise Hole(
                    f"{where}: the record before it is not the one that was read here (written in life "
                    f"{record.previous} of its writer, not {previous}); the log has lost its end since"
                )
            previous = record.generation
            if place.complete_from < record.complete_from < END:
                raise Hole(
                    f"{where}: from here on the stream is complete only from {record.complete_from}, and "
                    f"the run was started with {place.complete_from}; start it anew"
                )
            if record.rows is not None:
                yield _with_mark(record.rows, schema) if place.marks else record.rows
        if partition.mark is not None:
            yield _mark_row(partition.mark, schema)


def _with_mark(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    unmarked = pa.nulls(rows.num_rows, TIMESTAMP)
    return pa.RecordBatch.from_arrays([*rows.columns, unmarked], names=[*schema.names, MARK])


def _mark_row(mark: int, schema: pa.Schema) -> pa.RecordBatch:
    nothing = [pa.nulls(1, field.type) for field in schema]
    # Not pa.array: that imports pandas, if there is one, which takes 50 MB of each process.
    told = pa.Array.from_buffers(TIMESTAMP, 1, [None, pa.py_buffer(mark.to_bytes(8, sys.byteorder))])
    return pa.RecordBatch.from_arrays([*nothing, told], names=[*schema.names, MARK])


def _offset(json: dict[str, Any]) -> Offset:
    return msgspec.convert(json, Offset)


def _json(offset: Offset) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(offset)
    return made


def _tell(place: Place, position: int) -> None:
    if place.others:
        path = Path(place.taken) / place.stream
        fresh = path.with_suffix(".new")
        fresh.write_text(str(position), "ascii")
        fresh.replace(path)


def _told(place: Place, stream: str) -> int | None:
    try:
        return int((Path(place.taken) / stream).read_text("ascii"))
    except (OSError, ValueError):
        return None
