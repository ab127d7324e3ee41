"""One Spark for a whole test process; random queries with their inputs; and how results are compared."""

from __future__ import annotations

import json
import math
import os
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

from anabranch.engines.arrow import ArrowEngine
from anabranch.engines.ideal import accepted
from anabranch.engines.spark.replay import Replay
from anabranch.engines.spark.run import Server, Settings
from anabranch.engines.spark.session import session
from anabranch.fuzz.dice import Dice
from anabranch.fuzz.queries import draw_graph, expected_rows
from anabranch.fuzz.tuples import draw_table
from anabranch.graph import Graph
from anabranch.input_tables import check_inputs
from anabranch.streams.batch import Batch, concat, timestamps, with_ids
from anabranch.streams.punctuation import BEGINNING, END
from anabranch.types import arrow_schema

SECOND = 1_000_000
BUDGET = 4_000
"""Rows that all streams of a random query may have, about."""


@cache
def spark() -> Any:
    directory = f"/tmp/anabranch-conformance-{os.getpid()}"
    return session(Settings(Server(""), directory, master="local[2]", memory="1g"))


class Drawn(NamedTuple):
    graph: Graph
    inputs: dict[str, Batch]


def draw(seed: int, index: int) -> Drawn:
    """A random query and what its sources accept."""
    dice = Dice(seed, index)
    span = float(dice.pick((5, 8, 12)))
    begin = dice.weighted(((1_700_000_000 * SECOND, 60), (0, 15), (-7 * SECOND, 25)))
    graph = draw_graph(dice, span)
    rows = {source.name: 0 if dice.chance(0.08) else dice.between(10, 60) for source in graph.sources}
    while max(rows.values()) > 6 and sum(expected_rows(graph, rows, span).values()) > BUDGET:
        rows = {name: count * 4 // 5 for name, count in rows.items()}
    tables = {s.name: draw_table(dice, s, rows[s.name], begin, span) for s in graph.sources}
    checked = check_inputs(graph, tables)
    inputs = {}
    for source in graph.sources:
        made = accepted(source, checked[source.name])
        schema = with_ids(arrow_schema(source.columns))
        inputs[source.name] = pa.RecordBatch.from_pylist([], schema) if made is None else made
    return Drawn(graph, inputs)


Result = tuple[dict[str, Batch | None], list[tuple[str, int, int, int]]]


def arrow(graph: Graph, inputs: dict[str, Batch]) -> Result:
    """Every stream, and the poison, of the Arrow engine."""
    engine = ArrowEngine(graph, graph.order())
    engine.start(dict.fromkeys(engine.inputs, BEGINNING))
    rows: dict[str, list[Batch]] = {name: [] for name in graph.order()}
    for stream in engine.inputs:
        for emission in engine.feed(stream, inputs[stream], END):
            if emission.rows is not None:
                rows[emission.stream].append(emission.rows)
    poison = sorted({(e.operator, e.timestamp, e.hi, e.lo) for e in engine.events()})
    return {name: concat(made) if made else None for name, made in rows.items()}, poison


def streamed(
    graph: Graph, inputs: dict[str, Batch], seed: int, directory: Path, *, restarts: bool
) -> tuple[Result, int]:
    """What Spark streaming hands over of the streams that leave a fragment, and how many rows it dropped as
    late.

    The inputs come disordered as far as promises allow, promises late or not at all for a while.
    """
    random = Random(seed)
    dropped = 0
    with Replay(graph, directory, salts=random.choice((1, 3))) as running:
        chunks = {stream: _chunks(rows, random) for stream, rows in inputs.items()}
        restart = random.randrange(6) if restarts else -1
        for turn in range(max(map(len, chunks.values()))):
            for stream, fed in chunks.items():
                if turn < len(fed):
                    running.feed(stream, *fed[turn])
            if turn == restart:
                which = random.randrange(len(running.queries))
                if random.random() < 0.7:
                    running.wait_for_batch(which)
                dropped += _dropped(running.queries[which])
                running.restart(which)
        rows = running.finish()
        dropped += sum(map(_dropped, running.queries))
        poison = sorted({(p.operator, p.ts, p.hi, p.lo) for p in running.collector.poison})
    return (rows, poison), dropped


def _chunks(rows: Batch, random: Random) -> list[tuple[Batch | None, int]]:
    """``rows`` shuffled within what is promised: a promise may be as late as the chunks behind it."""
    count = random.randint(2, 6)
    order = sorted(
        range(rows.num_rows), key=lambda i: int(timestamps(rows)[i]) + random.randrange(2 * SECOND)
    )
    rows = rows.take(pa.array(order, pa.int64()))
    ts = timestamps(rows)
    cuts = [rows.num_rows * i // count for i in range(count + 1)]
    chunks: list[tuple[Batch | None, int]] = []
    for a, b in pairwise(cuts):
        rest = ts[b:]
        promise = int(rest.min()) - random.choice((1, 1, 1_000, 500_000)) if len(rest) else BEGINNING
        if random.random() < 0.3:
            promise = BEGINNING
        chunks.append((rows.slice(a, b - a) if b > a else None, promise))
    return [*chunks, (None, END)]


def _dropped(query: Any) -> int:
    reports = [json.loads(report.json) for report in query.recentProgress]
    return sum(state["numRowsDroppedByWatermark"] for report in reports for state in report["stateOperators"])


def assert_alike(made: Batch | None, meant: Batch | None, stream: str) -> None:
    """The same rows: ids, timestamps and values alike, floats to 1e-9."""
    one, other = _sorted(made), _sorted(meant)
    assert [row[:3] for row in one] == [row[:3] for row in other], stream
    for a, b in zip(one, other, strict=True):
        for x, y in zip(a, b, strict=True):
            assert _close(x, y), (stream, a, b)


def _sorted(batch: Batch | None) -> list[tuple[Any, ...]]:
    if batch is None:
        return []
    columns = [
        (column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for column in batch.columns
    ]
    return sorted(zip(*columns, strict=True), key=lambda row: row[:3])


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) or (math.isnan(a) and math.isnan(b))
    return bool(a == b and (a is None) == (b is None))
