"""The ideal run beside a live one that does not end: both up to a punctuation are compared tuple by tuple,
and then forgotten."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.engines.arrow import ArrowEngine
from anabranch.graph import Graph
from anabranch.lab.audit import rows_of
from anabranch.plan import Plan
from anabranch.streams.batch import TIMESTAMP, TS, Batch
from anabranch.streams.punctuation import BEGINNING

Row = tuple[Any, ...]


class Difference(msgspec.Struct, frozen=True):
    """``missing``: tuples of the ideal run that the application did not receive. ``extra``: those it received
    that are not in it, or not as often, or not with these values, or behind a punctuation. Each is its
    timestamp, its id, its columns."""

    application: str
    missing: tuple[Row, ...]
    extra: tuple[Row, ...]

    def __str__(self) -> str:
        return (
            f"{self.application}: {len(self.missing)} tuples are missing and {len(self.extra)} are too many; "
            f"missing {list(self.missing[:5])}, too many {list(self.extra[:5])}"
        )


class Auditor:
    """Is given what enters and what the applications of ``plan`` receive. What enters is not late."""

    def __init__(self, graph: Graph, plan: Plan) -> None:
        streams = {output.name: output.stream for output in graph.outputs}
        self._streams = {s.name: streams[s.output] for s in plan.subscriptions}
        self._engine = ArrowEngine(
            graph, [each.name for each in graph.operators], list(dict.fromkeys(self._streams.values()))
        )
        self._engine.start(dict.fromkeys(self._engine.inputs, BEGINNING))
        self._entered: dict[str, list[Batch]] = {stream: [] for stream in self._engine.inputs}
        self._received: dict[str, list[Batch]] = {name: [] for name in self._streams}
        self.compared = 0
        """Tuples of ideal runs, so far."""

    def enter(self, source: str, rows: Batch) -> None:
        self._entered[source].append(rows)

    def receive(self, application: str, rows: Batch) -> None:
        self._received[application].append(rows)

    def check(self, until: int) -> list[Difference]:
        """All with timestamps <= ``until`` that was not compared before. All of it has entered, and the
        applications' punctuation has reached it."""
        ideal: dict[str, list[Batch]] = {stream: [] for stream in self._streams.values()}
        for stream, entered in self._entered.items():
            now, self._entered[stream] = _divide(entered, until)
            # The last one's punctuation releases what hangs on all of them.
            for rows in [*now, None]:
                for emission in self._engine.feed(stream, rows, until if rows is None else None):
                    if emission.rows is not None:
                        ideal[emission.stream].append(emission.rows)
        differences = []
        for name, stream in self._streams.items():
            now, self._received[name] = _divide(self._received[name], until)
            wanted, got = _counted(ideal[stream]), _counted(now)
            self.compared += wanted.total()
            missing, extra = wanted - got, got - wanted
            if missing or extra:
                differences.append(Difference(name, tuple(missing.elements()), tuple(extra.elements())))
        return differences


def _divide(batches: list[Batch], until: int) -> tuple[list[Batch], list[Batch]]:
    """The rows up to a timestamp, and those behind it."""
    now: list[Batch] = []
    later: list[Batch] = []
    for rows in batches:
        early = pc.less_equal(rows.column(TS), pa.scalar(until, TIMESTAMP))
        for part, kept in ((now, early), (later, pc.invert(early))):
            chosen = rows.filter(kept)
            if chosen.num_rows:
                part.append(chosen)
    return now, later


def _counted(batches: list[Batch]) -> Counter[Row]:
    return Counter(row for rows in batches for row in rows_of(rows))
