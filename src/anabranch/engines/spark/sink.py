"""What a batch of a streaming query made, handed to the site's agent: see :mod:`anabranch.log.handover`.

Most batches take in little. What they make comes to the driver as Arrow, and the driver sends it: to start a
task in a Python worker takes far longer than that. Of a batch that takes in more than ``along_bytes``, or
makes more than ``LARGEST_RESULT``, the tasks send what they make. When everything has been sent, the driver
says so, and what the exported streams promise from then on; the agent answers when it is in the egress log,
and only then does Spark call the batch committed.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException

from anabranch.engines.spark.checkpoint import Batch, batch_offsets
from anabranch.engines.spark.promises import Promise, promised
from anabranch.engines.spark.user_code import conform
from anabranch.log import handover, names
from anabranch.log.blocking import Server
from anabranch.log.handing import hand_over
from anabranch.log.handover import Done, Piece
from anabranch.streams.batch import with_ids
from anabranch.types import Column, arrow_schema

EXPORT = "_export"
LARGEST_RESULT = "64m"
"""What Spark may collect in the driver; as its setting ``spark.driver.maxResultSize``."""
_TOO_LARGE = "spark.driver.maxResultSize"


class Export(msgspec.Struct, frozen=True):
    """A stream that leaves. In the rows of the sink, its user columns are those from ``at`` on."""

    stream: str
    columns: tuple[Column, ...]
    at: int
    promise: Promise


class Target(msgspec.Struct, frozen=True):
    """What whoever sends rows has to know. ``life``: of the driver, whose tasks are numbered anew in each."""

    url: str
    user: str | None
    password: str | None
    query: str
    fragment: str
    run: str
    life: str
    checkpoint: str
    along_bytes: int
    exports: tuple[Export, ...]

    def send(self, batches: Iterable[pa.RecordBatch], batch: int, sender: str) -> int:
        """Sends all rows, and says in how many pieces."""
        return self.hand_over(self._pieces(batches, batch, sender))

    def _pieces(self, batches: Iterable[pa.RecordBatch], batch: int, sender: str) -> Iterator[Piece]:
        number = itertools.count()
        for rows in batches:
            for export, part in self._parts(rows):
                for data in handover.pieces(part):
                    yield Piece(self.fragment, self.run, batch, sender, next(number), export.stream, data)

    def _parts(self, rows: pa.RecordBatch) -> Iterator[tuple[Export, pa.RecordBatch]]:
        """The rows of each export, as its stream has them."""
        if len(self.exports) == 1:
            if rows.num_rows:
                (export,) = self.exports
                yield export, conform(rows, with_ids(arrow_schema(export.columns)))
            return
        which = rows.column(0).to_numpy()
        for number, export in enumerate(self.exports):
            mine = which == number
            if mine.any():
                part = rows if mine.all() else rows.filter(pa.array(mine))
                user = part.columns[export.at : export.at + len(export.columns)]
                schema = with_ids(arrow_schema(export.columns))
                bare = pa.RecordBatch.from_arrays([*part.columns[1:4], *user], names=schema.names)
                yield export, conform(bare, schema)

    def hand_over(self, messages: Iterable[handover.Handover]) -> int:
        server = Server(self.url, self.user, self.password, self.fragment)
        return hand_over(server, names.engine(self.query), messages)


class HandoverSink:
    """Called by Spark once for each batch, and again after a crash in between. A batch is computed when its
    rows are asked for; a second time only when the first has failed."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def __call__(self, rows: Any, batch: int) -> None:
        checkpoint = Path(self._target.checkpoint)
        offsets = batch_offsets(checkpoint, batch)
        before = batch_offsets(checkpoint, batch - 1) if batch else None
        if _bytes(offsets) - _bytes(before) > self._target.along_bytes:
            sent = self._let_tasks_send(rows, batch)
        else:
            try:
                sent = self._send(rows, batch)
            except (Py4JJavaError, PySparkException) as error:
                if _TOO_LARGE not in str(error):
                    raise
                sent = self._let_tasks_send(rows, batch)
        self._say_done(batch, sent, offsets, before)

    def _send(self, rows: Any, batch: int) -> dict[str, int]:
        target = self._target
        # Not in the name of a task: what an attempt before this one has sent does not count.
        sender = f"{target.life}.{secrets.token_hex(4)}"
        count = target.send(rows.toArrow().combine_chunks().to_batches(), batch, sender)
        return {sender: count} if count else {}

    def _let_tasks_send(self, rows: Any, batch: int) -> dict[str, int]:
        send = partial(_send_from_task, target=self._target, batch=batch)
        return {
            row.sender: row.pieces for row in rows.mapInArrow(send, "sender string, pieces int").collect()
        }

    def _say_done(self, batch: int, sent: dict[str, int], offsets: Batch, before: Batch | None) -> None:
        target = self._target
        done = Done(
            target.fragment,
            target.run,
            batch,
            sent,
            {export.stream: promised(export.promise, offsets, before) for export in target.exports},
            {stream: offset.position for stream, offset in offsets.inputs.items()},
        )
        target.hand_over([done])


def _bytes(batch: Batch | None) -> int:
    return 0 if batch is None else sum(offset.bytes for offset in batch.inputs.values())


def _send_from_task(
    batches: Iterator[pa.RecordBatch], target: Target, batch: int
) -> Iterator[pa.RecordBatch]:
    """In a Python worker. The name of the attempt: what another attempt of the same task sends does not
    count."""
    context = TaskContext.get()
    assert context is not None
    sender = f"{target.life}.{context.partitionId()}.{context.taskAttemptId()}"
    count = target.send(batches, batch, sender)
    if count:
        yield pa.RecordBatch.from_pydict(
            {"sender": [sender], "pieces": pa.array([count], pa.int32())},
        )
