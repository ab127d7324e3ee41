"""Small batches, records and messages for the tests of single protocols; time is counted from 0."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from anabranch.graph import Column, Source
from anabranch.protocols.effects import Append, Effect, OpenBranch, Report, Send
from anabranch.protocols.records import Record, Writer
from anabranch.streams.batch import Batch, ids, timestamps, with_ids
from anabranch.streams.punctuation import BEGINNING

SECOND = 1_000_000
COLUMNS = (Column("v", "bigint"),)
SOURCE = Source("s", COLUMNS)
SCHEMA = with_ids(pa.schema({"v": pa.int64()}))


def batch(*tuples: tuple[int, int]) -> Batch:
    """Tuples as (timestamp, id); the id is the value, too."""
    ts, numbers = [t for t, _ in tuples], [n for _, n in tuples]
    return pa.RecordBatch.from_pydict(
        {"_ts": ts, "_hi": [0] * len(ts), "_lo": numbers, "v": numbers}, schema=SCHEMA
    )


def log(
    *records: tuple[Sequence[tuple[int, int]], int], generation: int = 1, complete_from: int = BEGINNING
) -> tuple[Record, ...]:
    """The records of a log that one writer wrote, each as (tuples, punctuation)."""
    writer = Writer("out/s", generation)
    writer.complete_from = complete_from
    return tuple(append(writer, tuples, punctuation) for tuples, punctuation in records)


def append(writer: Writer, tuples: Sequence[tuple[int, int]], punctuation: int) -> Record:
    writer.punctuation = punctuation
    return writer.append(batch(*tuples) if tuples else None).record


def contents(rows: Batch | None) -> list[tuple[int, int]]:
    """The tuples of a batch as (timestamp, id)."""
    if rows is None:
        return []
    return list(zip(timestamps(rows).tolist(), ids(rows)[1].tolist(), strict=True))


def appended(effects: Iterable[Effect]) -> list[Append]:
    return [effect for effect in effects if isinstance(effect, Append)]


def opened(effects: Iterable[Effect]) -> list[OpenBranch]:
    return [effect for effect in effects if isinstance(effect, OpenBranch)]


def reported(effects: Iterable[Effect]) -> list[Any]:
    return [effect.event for effect in effects if isinstance(effect, Report)]


def sent(effects: Iterable[Effect], kind: type) -> list[Any]:
    return [
        effect.message for effect in effects if isinstance(effect, Send) and isinstance(effect.message, kind)
    ]
