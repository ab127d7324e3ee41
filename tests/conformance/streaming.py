"""Drives an engine with the same streams in many lawful ways, and collects what comes out."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
from oracle import Row

from anabranch.engines.arrow import ArrowEngine
from anabranch.streams.batch import Batch, concat, timestamps
from anabranch.streams.punctuation import BEGINNING, END

Piece = tuple[str, Batch | None, int | None]


def batch_of(rows: list[Row], schema: pa.Schema) -> Batch:
    """The rows as they travel."""
    columns = [[row.ts for row in rows], [row.hi for row in rows], [row.lo for row in rows]]
    columns += [[row.values[name] for row in rows] for name in schema.names[3:]]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema=schema
    )


def rows_of(batch: Batch | None) -> list[Row]:
    if batch is None:
        return []
    columns = []
    for column, field in zip(batch.columns, batch.schema, strict=True):
        as_number = pa.types.is_timestamp(field.type)
        columns.append((column.view(pa.int64()) if as_number else column).to_pylist())
    return [
        Row(ts, hi, lo, dict(zip(batch.schema.names[3:], v, strict=True)))
        for ts, hi, lo, *v in zip(*columns, strict=True)
    ]


def pieces(inputs: dict[str, Batch], random: Random) -> list[Piece]:
    """The inputs cut into batches in any order, with punctuations that hold."""
    streams = []
    for name, batch in inputs.items():
        order = list(range(batch.num_rows))
        random.shuffle(order)
        if random.random() < 0.5:
            # mostly in order, as real streams are
            order.sort(key=lambda i: int(timestamps(batch)[i]) + random.randrange(6))
        cut: list[Piece] = []
        promised = BEGINNING
        while order:
            size = random.choice([1, 1, 2, 5, 40])
            now, order = order[:size], order[size:]
            least = min((int(timestamps(batch)[i]) for i in order), default=END)
            p = random.choice([None, least - 1, least - 1 - random.randrange(5)])
            promised = max(promised, p) if p is not None else promised
            rows = batch.take(pa.array(now))
            if random.random() < 0.5:
                cut.append((name, rows, None if p is None else promised))
            else:
                cut += [(name, rows, None), (name, None, promised)]
        cut.append((name, None, END))
        streams.append(cut)
    merged: list[Piece] = []
    while streams:
        cut = random.choice(streams)
        merged.append(cut.pop(0))
        streams = [rest for rest in streams if rest]
    return merged


class Collector:
    """What an engine emitted, checked against the laws of punctuation as it comes."""

    def __init__(self, engine: ArrowEngine) -> None:
        self.engine = engine
        self.rows: dict[str, list[Batch]] = {stream: [] for stream in engine.exports}
        self.punctuation = dict.fromkeys(engine.exports, BEGINNING)
        self.poison: list[tuple[str, int, int, int]] = []

    def feed(self, stream: str, rows: Batch | None, punctuation: int | None) -> None:
        seen = set()
        for emission in self.engine.feed(stream, rows, punctuation):
            assert emission.stream not in seen
            seen.add(emission.stream)
            if emission.rows is not None:
                assert emission.rows.num_rows
                emission.rows.validate(full=True)
                assert timestamps(emission.rows).min() > self.punctuation[emission.stream]
                self.rows[emission.stream].append(emission.rows)
            assert emission.punctuation >= self.punctuation[emission.stream]
            self.punctuation[emission.stream] = emission.punctuation
        self.poison += [(e.operator, e.timestamp, e.hi, e.lo) for e in self.engine.events()]

    def all_rows(self) -> dict[str, Batch | None]:
        return {stream: concat(batches) if batches else None for stream, batches in self.rows.items()}


def sorted_by_id(batch: Batch | None) -> Batch | None:
    if batch is None:
        return None
    order = np.lexsort((batch.column(2).to_numpy(), batch.column(1).to_numpy(), timestamps(batch)))
    return batch.take(pa.array(order))


def bits(batch: Batch | None) -> list[tuple]:
    """The rows as exactly as they can be told apart: floats by their bits."""
    batch = sorted_by_id(batch)
    if batch is None:
        return []
    columns = []
    for column in batch.columns:
        if pa.types.is_floating(column.type):
            raw = (
                np.ascontiguousarray(column.fill_null(0).to_numpy(zero_copy_only=False))
                .view(np.int64)
                .tolist()
            )
            columns.append(
                [b if v else None for b, v in zip(raw, column.is_valid().to_pylist(), strict=True)]
            )
        elif pa.types.is_timestamp(column.type):
            columns.append(column.view(pa.int64()).to_pylist())
        else:
            columns.append(column.to_pylist())
    return list(zip(*columns, strict=True))
