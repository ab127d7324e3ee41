"""A whole query on one real Spark: every fragment a streaming query, the streams between them in a log."""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.engines.ideal import accepted, as_table
from anabranch.engines.spark.checkpoint import committed
from anabranch.engines.spark.collector import Collector, Delivery, InLog
from anabranch.engines.spark.failures import reason
from anabranch.engines.spark.fragment import inputs_of, start_query
from anabranch.engines.spark.run import Input, Run, Server, Settings
from anabranch.engines.spark.session import session
from anabranch.graph import Graph
from anabranch.input_tables import HasGraph, check_inputs, graph_of
from anabranch.log import server as log_server
from anabranch.log.blocking import Connection
from anabranch.log.handover import Done
from anabranch.protocols.cuts import Group, cuts
from anabranch.streams.batch import Batch, concat, timestamps, with_ids
from anabranch.streams.punctuation import BEGINNING, END
from anabranch.types import arrow_schema

PATIENCE = 120.0
"""Seconds without a batch after which a replay gives up."""


_SETTLED_WITHIN = 5.0
_ATTEMPTS = 3


class ReplayError(RuntimeError):
    """A replay that came to no end: the sentence says why."""


def replay(
    query: Graph | HasGraph,
    inputs: Mapping[str, pa.Table],
    *,
    batches: int = 8,
    master: str = "local[2]",
    memory: str = "1g",
) -> dict[str, pa.Table]:
    """What each output is when Spark computes it: as :func:`anabranch.ideal` gives it, with the inputs
    streamed in about ``batches`` micro-batches. The first replay in a process starts Spark, which takes
    seconds."""
    graph = graph_of(query)
    tables = check_inputs(graph, inputs)
    sources = {source.name: accepted(source, tables[source.name]) for source in graph.sources}
    with (
        tempfile.TemporaryDirectory(prefix="anabranch-replay-") as directory,
        Replay(graph, Path(directory), master=master, memory=memory) as running,
    ):
        for chunk in range(batches):
            for name, rows in sources.items():
                running.feed(name, *_chunk(rows, chunk, batches))
        streams = running.finish()
    schemas = {name: with_ids(arrow_schema(graph.schema(name))) for name in (*sources, *graph.order())}
    return {
        output.name: as_table(
            sources[output.stream] if output.stream in sources else streams[output.stream],
            schemas[output.stream],
        )
        for output in graph.outputs
    }


def _chunk(rows: Batch | None, number: int, count: int) -> tuple[Batch | None, int]:
    """Chunk ``number`` of ``rows`` as they come, and what may be promised behind it."""
    if rows is None or (number == count - 1 and not rows.num_rows):
        return None, END if number == count - 1 else BEGINNING
    first, end = rows.num_rows * number // count, rows.num_rows * (number + 1) // count
    rest = timestamps(rows)[end:]
    promise = END if number == count - 1 else int(rest.min()) - 1 if len(rest) else BEGINNING
    return (rows.slice(first, end - first) if end > first else None), promise


class Replay:
    """A query's fragments under way; ``feed`` its sources, then ``finish``."""

    def __init__(
        self,
        graph: Graph,
        directory: Path,
        *,
        master: str = "local[2]",
        memory: str = "1g",
        salts: int = 1,
        patience: float = 0.3,
    ) -> None:
        self.graph = graph
        self.rows: dict[str, list[Batch]] = {}
        self.punctuation: dict[str, int] = {}
        self._directory = directory
        self._attempts = _ATTEMPTS
        self._log = log_server.Server(
            log_server.ServerSettings("replay", directory / "log", port=_free_port(), sync="2m")
        )
        self._log.start()
        self._feeding = Connection(self._log.url)
        self._passing = Connection(self._log.url)
        self._settings = Settings(
            Server(self._log.url),
            str(Path(tempfile.gettempdir()) / "anabranch-spark"),
            master=master,
            memory=memory,
            salts=salts,
            patience=patience,
        )
        self._groups = cuts(graph, graph.order())
        exports = {stream for group in self._groups for stream in exports_of(graph, group, self._groups)}
        taken = {stream for group in self._groups for stream in inputs_of(graph, group)}
        self._logs = {
            stream: InLog(self._passing if stream in exports else self._feeding, graph.name, stream)
            for stream in taken
        }
        self.collector = Collector(
            self._log.url,
            graph.name,
            {stream: with_ids(arrow_schema(graph.schema(stream))) for stream in exports},
            self._deliver,
        )
        self.rows = {stream: [] for stream in exports}
        self.punctuation = dict.fromkeys(exports, BEGINNING)
        self._heard = time.monotonic()
        self._spark = session(self._settings)
        self.queries: list[Any] = []
        try:
            for number, group in enumerate(self._groups):
                self.queries.append(self._start(number, group))
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: object) -> None:
        for number, query in enumerate(self.queries):
            self._settle(number)
            query.stop()
        self.collector.close()
        self._feeding.close()
        self._passing.close()
        self._log.stop()
        shutil.rmtree(self._directory / "log", ignore_errors=True)

    def _start(self, number: int, group: Group) -> Any:
        run = Run(
            f"group{number}",
            msgspec.Raw(self.graph.to_json()),
            group,
            exports_of(self.graph, group, self._groups),
            {stream: Input(0, BEGINNING) for stream in inputs_of(self.graph, group)},
            dict.fromkeys(group, BEGINNING),
            str(self._directory / f"group{number}"),
        )
        return start_query(self._spark, run, "replay", "replay", self._settings)

    def _settle(self, number: int) -> None:
        """Gives Spark the time to call its own what has been taken of it."""
        until = time.monotonic() + _SETTLED_WITHIN
        last = self.collector.last.get((f"group{number}", "replay"), -1)
        checkpoint = self._directory / f"group{number}" / "spark"
        while committed(checkpoint) < last and time.monotonic() < until and self.queries[number].isActive:
            time.sleep(0.02)

    def wait_for_batch(self, number: int, patience: float = 20.0) -> None:
        """Until a query has handed over a batch, or it seems that none will come."""
        until = time.monotonic() + patience
        while (f"group{number}", "replay") not in self.collector.last and time.monotonic() < until:
            time.sleep(0.02)

    def restart(self, number: int) -> None:
        """Stops a query and takes it up again from its checkpoint."""
        self.queries[number].stop()
        self.queries[number] = self._start(number, self._groups[number])

    def feed(self, source: str, rows: Batch | None, punctuation: int) -> None:
        if source in self._logs:
            self._logs[source].append(rows, punctuation)

    def finish(self) -> dict[str, Batch | None]:
        """Every exported stream, once all of them have promised that nothing more comes."""
        while any(p != END for p in self.punctuation.values()):
            for query in list(self.queries):
                error = query.exception()
                if error is not None:
                    self._take_up(query, error)
            if time.monotonic() - self._heard > PATIENCE:
                behind = [stream for stream, p in self.punctuation.items() if p != END]
                raise ReplayError(f"nothing has come for {PATIENCE:g} s; streams {behind} are not finished")
            time.sleep(0.02)
        return {stream: concat(rows) if rows else None for stream, rows in self.rows.items()}

    def _take_up(self, query: Any, error: Exception) -> None:
        """A query that failed, again from its checkpoint: Spark gives a worker ten seconds to start, which on
        a crowded machine are few."""
        if self._attempts == 0:
            raise ReplayError(f"a query of Spark's failed: {reason(error)}")
        self._attempts -= 1
        self.restart(self.queries.index(query))

    def _deliver(self, done: Done, deliveries: list[Delivery]) -> None:
        self._heard = time.monotonic()
        for stream, rows, punctuation in deliveries:
            if rows is not None:
                behind = timestamps(rows) <= self.punctuation[stream]
                if np.any(behind):
                    raise ValueError(f"{stream}: {int(behind.sum())} rows come behind its punctuation")
                self.rows[stream].append(rows)
            if stream in self._logs and (rows is not None or punctuation > self.punctuation[stream]):
                self._logs[stream].append(rows, punctuation)
            self.punctuation[stream] = max(self.punctuation[stream], punctuation)


def exports_of(graph: Graph, group: Group, groups: tuple[Group, ...]) -> tuple[str, ...]:
    """What of a group leaves it: outputs, and what other groups take in."""
    wanted = {output.stream for output in graph.outputs}
    for other in groups:
        if other != group:
            wanted |= set(inputs_of(graph, other))
    return tuple(name for name in group if name in wanted)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
