"""What plain Spark reads and writes when it is compared with: a log of the same server, through the same
source, without ids and punctuation, which it does not know; and a sink that appends what it is given to
another log.

The sink is at least once: what a batch that is computed again has sent before is there twice. That costs it
less than what Anabranch does, and shows its results sooner.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)

from anabranch.engines.spark.source import LogReader, LogSource
from anabranch.engines.spark.user_code import conform
from anabranch.log import handover, names
from anabranch.log.blocking import Server
from anabranch.streams.batch import TIMESTAMP, TS
from anabranch.types import Column, arrow_schema

SOURCE = "plain-log"
SINK = "plain-log-sink"
PATIENCE = 60.0


def plain_schema(columns: tuple[Column, ...]) -> pa.Schema:
    return pa.schema([pa.field(TS, TIMESTAMP), *arrow_schema(columns)])


class PlainSource(LogSource):
    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> str:
        user = "".join(f", `{column.name}` {column.type}" for column in self._place().columns)
        return f"{TS} timestamp{user}"

    def streamReader(self, schema: Any) -> PlainReader:
        return PlainReader(self._place())


class PlainReader(LogReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for rows in super().read(partition):
            yield rows.select([TS, *(column.name for column in self._place.columns)])


class Into(msgspec.Struct, frozen=True):
    """Where the sink appends; its one option, as JSON."""

    url: str
    query: str
    stream: str
    columns: tuple[Column, ...]


class PlainSink(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return SINK

    def streamWriter(self, schema: Any, overwrite: bool) -> PlainWriter:
        return PlainWriter(msgspec.json.decode(self.options["into"], type=Into))


class PlainWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    def __init__(self, into: Into) -> None:
        self._into = into

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        into = self._into
        server = Server(into.url, None, None)
        schema = plain_schema(into.columns)
        for rows in iterator:
            for piece in handover.pieces(conform(rows, schema)):
                answer = server.request(names.subject(into.query, into.stream), piece, PATIENCE)
                if b'"error"' in answer:
                    raise OSError(f"the log server does not take a record: {answer.decode()}")
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All is in the log already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """As it is: at least once."""
