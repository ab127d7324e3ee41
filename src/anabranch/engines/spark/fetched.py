"""What a source of Spark's brings, handed to the site's agent: see :mod:`anabranch.engines.spark.fetch`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from anabranch.engines.spark.orders import schema_of
from anabranch.engines.spark.user_code import conform
from anabranch.log import handover, names
from anabranch.log.blocking import Server
from anabranch.log.handing import hand_over
from anabranch.log.handover import Done, Piece
from anabranch.types import Column

NAME = "anabranch-fetched"


class FetchError(ValueError):
    """A source that cannot be read as it is described: the sentence says why."""


class Target(msgspec.Struct, frozen=True):
    """What a writer has to know; the one option of the sink, as JSON."""

    url: str
    user: str | None
    password: str | None
    query: str
    fragment: str
    run: str
    life: str
    stream: str
    columns: tuple[Column, ...]

    def hand_over(self, messages: Iterable[handover.Handover]) -> int:
        return hand_over(Server(self.url, self.user, self.password), names.fetched(self.query), messages)


class FetchedSink(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(self, schema: Any, overwrite: bool) -> FetchedWriter:
        return FetchedWriter(msgspec.json.decode(self.options["target"], type=Target))


@dataclass
class Sent(WriterCommitMessage):  # type: ignore[misc]
    """``task`` names the attempt, and at which place its rows stand in the batch."""

    task: str
    pieces: int


class FetchedWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        target = self._target
        task = f"{context.partitionId()}.{context.taskAttemptId()}.{target.life}"
        return Sent(task, target.hand_over(_pieces(iterator, target, batch, task)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        target = self._target
        sent = [message for message in messages if isinstance(message, Sent)]
        pieces = {message.task: message.pieces for message in sent if message.pieces}
        target.hand_over([Done(target.fragment, target.run, batchId, pieces, {}, {})])

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Pieces without a ``Done`` are nothing to the agent."""


def _pieces(batches: Iterable[pa.RecordBatch], target: Target, batch: int, task: str) -> Iterator[Piece]:
    schema = schema_of(target.columns)
    number = itertools.count()
    for rows in batches:
        for data in handover.pieces(_checked(conform(rows, schema), target.stream)):
            yield Piece(target.fragment, target.run, batch, task, next(number), target.stream, data)


def _checked(rows: pa.RecordBatch, stream: str) -> pa.RecordBatch:
    for column, what in ((0, "partition"), (1, "number"), (2, "timestamp")):
        if rows.column(column).null_count:
            row = pc.index(rows.column(column).is_null(), True).as_py()
            shown = str(rows.slice(row, 1).to_pylist()[0])[:300]
            raise FetchError(
                f"source {stream!r}: a row whose {what} is null: {shown}; give every row one in select, as "
                "with coalesce(...)"
            )
    return rows
