"""What a batch of a streaming query made, handed to the site's agent: see :mod:`anabranch.log.handover`.

The writers, on the executors, send pieces. When all tasks of a batch are through, the driver says so, and
what the exported streams promise from then on; the agent answers when everything is in the egress log, and
only then does Spark call the batch committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from anabranch.engines.spark.checkpoint import batch_offsets
from anabranch.engines.spark.promises import Promise, promised
from anabranch.engines.spark.user_code import conform
from anabranch.log import handover, names
from anabranch.log.blocking import Server
from anabranch.log.handover import Done, Piece
from anabranch.streams.batch import with_ids
from anabranch.types import Column, arrow_schema

NAME = "anabranch-handover"
EXPORT = "_export"
PATIENCE = 120.0
"""Seconds in which the agent must take what is handed over; then the query fails and comes again."""


class Export(msgspec.Struct, frozen=True):
    """A stream that leaves. In the rows of the sink, its user columns are those from ``at`` on."""

    stream: str
    columns: tuple[Column, ...]
    at: int
    promise: Promise


class Target(msgspec.Struct, frozen=True):
    """What a writer has to know; the one option of the sink, as JSON. ``life``: of the driver, whose tasks
    are numbered anew in each."""

    url: str
    user: str | None
    password: str | None
    query: str
    fragment: str
    run: str
    life: str
    checkpoint: str
    exports: tuple[Export, ...]

    def hand_over(self, message: handover.Handover) -> None:
        """Again and again while there is nobody to take it: a repetition costs nothing."""
        server = Server(self.url, self.user, self.password)
        answer = server.request(names.engine(self.query), handover.encode(message), PATIENCE)
        if answer != handover.OK:
            raise OSError(f"the agent does not take the batch: {answer.decode('utf-8', 'replace')}")


class HandoverSink(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(self, schema: Any, overwrite: bool) -> HandoverWriter:
        return HandoverWriter(msgspec.json.decode(self.options["target"], type=Target))


@dataclass
class Sent(WriterCommitMessage):  # type: ignore[misc]
    """``task`` names the attempt: what another attempt of the same task has sent does not count."""

    task: str
    pieces: int


class HandoverWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        task = f"{self._target.life}.{context.partitionId()}.{context.taskAttemptId()}"
        sent = 0
        for rows in iterator:
            for export, part in self._parts(rows):
                for data in handover.pieces(part):
                    piece = Piece(
                        self._target.fragment, self._target.run, batch, task, sent, export.stream, data
                    )
                    self._target.hand_over(piece)
                    sent += 1
        return Sent(task, sent)

    def _parts(self, rows: pa.RecordBatch) -> Iterator[tuple[Export, pa.RecordBatch]]:
        """The rows of each export, as its stream has them."""
        which = rows.column(0).to_numpy()
        for number, export in enumerate(self._target.exports):
            mine = which == number
            if mine.any():
                part = rows if mine.all() else rows.filter(pa.array(mine))
                user = part.columns[export.at : export.at + len(export.columns)]
                schema = with_ids(arrow_schema(export.columns))
                bare = pa.RecordBatch.from_arrays([*part.columns[1:4], *user], names=schema.names)
                yield export, conform(bare, schema)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        target = self._target
        offsets = batch_offsets(Path(target.checkpoint), batchId)
        before = batch_offsets(Path(target.checkpoint), batchId - 1) if batchId else None
        sent = [message for message in messages if isinstance(message, Sent)]
        done = Done(
            target.fragment,
            target.run,
            batchId,
            {message.task: message.pieces for message in sent if message.pieces},
            {export.stream: promised(export.promise, offsets, before) for export in target.exports},
            {stream: offset.position for stream, offset in offsets.inputs.items()},
        )
        target.hand_over(done)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Pieces without a ``Done`` are nothing to the agent."""
