"""A site as far as an engine sees it: a real log server, ingress logs, a small agent, and a driver
process."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from anabranch.engines.spark import run as said
from anabranch.engines.spark.collector import Collector, Delivery, InLog
from anabranch.engines.spark.fragment import inputs_of
from anabranch.engines.spark.run import (
    Failed,
    Input,
    Progress,
    Ready,
    Run,
    Settings,
    Start,
    Started,
    Stop,
    Taken,
)
from anabranch.engines.spark.run import Server as Access
from anabranch.graph import Graph
from anabranch.log.blocking import Connection
from anabranch.log.handover import Done
from anabranch.log.server import Server, ServerSettings
from anabranch.protocols.effects import Append
from anabranch.protocols.egress import Egress
from anabranch.protocols.records import Record
from anabranch.protocols.settings import Settings as ProtocolSettings
from anabranch.streams.batch import Batch, timestamps, with_ids
from anabranch.streams.punctuation import BEGINNING, END
from anabranch.types import arrow_schema

PATIENCE = 240.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Driver:
    """A real driver process."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "driver.json"
        path.write_bytes(msgspec.json.encode(settings))
        self.log = directory / "driver.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "anabranch.engines.spark.driver", str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self.events: queue.Queue[said.Event | None] = queue.Queue()
        self.seen: list[said.Event] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.put(said.decode_event(line))
        self.events.put(None)

    def tell(self, command: said.Command) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(said.encode(command))
        self.process.stdin.flush()

    def wait_for(self, kind: type, patience: float = PATIENCE) -> Any:
        until = time.monotonic() + patience
        while True:
            event = self.events.get(timeout=max(until - time.monotonic(), 0.01))
            assert event is not None, f"the driver has left; see {self.log.read_text()[-3000:]}"
            self.seen.append(event)
            if isinstance(event, kind):
                return event
            assert isinstance(event, Progress), event

    def progress(self) -> list[Progress]:
        while not self.events.empty():
            event = self.events.get()
            if event is not None:
                self.seen.append(event)
        return [event for event in self.seen if isinstance(event, Progress)]

    def kill(self) -> None:
        """With all that it has started, as when the power goes."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self._reap()

    def leave(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self._reap()

    def _reap(self) -> int:
        status = self.process.wait(60)
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        return status


class Site:
    """``operators`` of ``graph`` as one fragment. Its egress logs are the protocols' own, kept in memory."""

    def __init__(
        self, graph: Graph, operators: tuple[str, ...], exports: tuple[str, ...], directory: Path
    ) -> None:
        self.graph, self.operators, self.exports = graph, operators, exports
        self.directory = directory
        self.server = Server(ServerSettings("test", directory / "log", port=free_port(), sync="2m"))
        self.server.start()
        self.schemas = {name: with_ids(arrow_schema(graph.schema(name))) for name in graph.order()}
        self.connection = Connection(self.server.url)
        self.inputs = inputs_of(graph, operators)
        self.logs = {stream: InLog(self.connection, graph.name, stream) for stream in self.inputs}
        self.settings = Settings(
            Access(self.server.url), str(directory / "spark"), master="local[2]", progress=0.2, patience=0.3
        )
        self.kept: dict[str, list[Record]] = {stream: [] for stream in exports}
        self.egresses: dict[str, Egress] = {}
        self.current = ""
        self.taken: dict[str, Taken] = {}
        self.delivered: list[tuple[Done, list[Delivery]]] = []
        self.promised: dict[tuple[str, str], int] = {}
        self.broken: list[str] = []
        self.collector = Collector(self.server.url, graph.name, self.schemas, self._deliver)
        self.driver: Driver | None = None

    def close(self) -> None:
        if self.driver is not None and self.driver.process.poll() is None:
            self.driver.kill()
        self.collector.close()
        self.connection.close()
        self.server.stop()

    # --- the driver

    def start_driver(self) -> Driver:
        self.driver = Driver(self.settings, self.directory)
        self.driver.wait_for(Ready)
        return self.driver

    def run(self, complete_from: dict[str, int] | None = None, **inputs: Input) -> Run:
        starts = {stream: Input(0, BEGINNING) for stream in self.inputs} | inputs
        return Run(
            "fragment",
            msgspec.Raw(self.graph.to_json()),
            self.operators,
            self.exports,
            starts,
            complete_from or dict.fromkeys(self.operators, BEGINNING),
            str(self.directory / "checkpoint"),
            self.taken,
        )

    def start_fragment(self, **inputs: Input) -> Started:
        assert self.driver is not None
        self._recover()
        self.driver.tell(Start(self.run(**inputs)))
        started = self.driver.wait_for(Started)
        self.current = started.run
        return started

    def stop_fragment(self) -> None:
        assert self.driver is not None
        self.driver.tell(Stop("fragment"))
        self.driver.wait_for(said.Stopped)

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.directory / "checkpoint")

    # --- the agent

    def _recover(self) -> None:
        """A new life of the egress, over what its log holds."""
        for stream in self.exports:
            egress = Egress(stream, "here", ProtocolSettings(), 1)
            egress.recover(0, tuple(self.kept[stream]))
            egress.begin(BEGINNING)
            self.egresses[stream] = egress

    def _deliver(self, done: Done, deliveries: list[Delivery]) -> None:
        if self.current and done.run != self.current:
            return
        self.delivered.append((done, deliveries))
        for stream, rows, punctuation in deliveries:
            before = self.promised.get((done.run, stream), BEGINNING)
            if rows is not None and int(timestamps(rows).min()) <= before:
                self.broken.append(f"batch {done.batch}: a row of {stream} behind {before}")
            if punctuation < before:
                self.broken.append(f"batch {done.batch}: {stream} takes back its promise {before}")
            self.promised[done.run, stream] = punctuation
            for effect in self.egresses[stream].offer(rows, punctuation):
                assert isinstance(effect, Append)
                self.kept[stream].append(effect.record)
            self.taken[stream] = Taken(done.run, done.batch)

    def output(self, stream: str) -> list[Batch]:
        return [record.rows for record in self.kept[stream] if record.rows is not None]

    def table(self, stream: str) -> pa.Table:
        return pa.Table.from_batches(self.output(stream), self.schemas[stream])

    def wait_until(self, condition: Any, patience: float = PATIENCE) -> None:
        until = time.monotonic() + patience
        while not condition():
            assert not self.broken, self.broken
            if self.driver is not None:
                self.driver.progress()
                failed = [event for event in self.driver.seen if isinstance(event, Failed)]
                assert not failed, failed
            assert time.monotonic() < until, "nothing has come of it"
            time.sleep(0.02)
        assert not self.broken, self.broken

    def finished(self) -> bool:
        return all(self.kept[s] and self.kept[s][-1].punctuation == END for s in self.exports)
