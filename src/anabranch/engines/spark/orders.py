"""What the driver is told to do for a site's own sources and sinks, beside fragments.

A source is one more streaming query: what its batches bring is handed to the agent (:mod:`.fetch`). A sink is
told each of its batches by itself, and answers when it is written (:mod:`.deliver`).
"""

from __future__ import annotations

import msgspec
import pyarrow as pa

from anabranch.streams.batch import TIMESTAMP
from anabranch.types import Column, arrow_schema

PARTITION, NUMBER, TS = "_partition", "_number", "_ts"


def schema_of(columns: tuple[Column, ...]) -> pa.Schema:
    """Of the rows that a source hands over: which tuples they are, and ``columns``. What the source does not
    have of that is empty or 0."""
    first = [pa.field(PARTITION, pa.string()), pa.field(NUMBER, pa.int64()), pa.field(TS, TIMESTAMP)]
    return pa.schema([*first, *arrow_schema(columns)])


class Fetch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="fetch"):
    """Read a source of Spark's; answered as :class:`anabranch.engines.spark.run.Start` is, with ``fragment``
    as the name. ``query``: on whose subject it is handed over. ``partition`` and ``number``: the columns that
    say which tuple a row is; None where nothing does. ``timestamp``: the column; None where the entry point
    gives it. ``run``: the one to take up again; if its checkpoint is not there, that is a failure unless it
    may begin ``anew``; empty: a new one."""

    fragment: str
    query: str
    stream: str
    columns: tuple[Column, ...]
    format: str
    options: dict[str, str]
    schema: str | None
    select: tuple[str, ...]
    partition: str | None
    number: str | None
    timestamp: str | None
    every: float
    checkpoint: str
    run: str
    anew: bool


class Deliver(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="deliver"):
    """Write the rows of the Arrow file ``rows``; answered by ``Delivered`` or ``Failed``. ``batch`` is the
    same whenever the same rows are to be written again; ``{batch}`` in ``options`` and ``select`` stands for
    it."""

    fragment: str
    batch: int
    rows: str
    format: str
    options: dict[str, str]
    mode: str
    select: tuple[str, ...]


class Delivered(msgspec.Struct, frozen=True, tag="delivered"):
    """Batch ``batch`` is written."""

    fragment: str
    batch: int
