"""Plain Spark Structured Streaming, run as well as one can: a log server, a driver that reads and writes logs
of it, and a supervisor that starts the driver again, from its checkpoint, the moment it has ended."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pyarrow as pa

from anabranch.engines.spark.run import Server as Where
from anabranch.engines.spark.run import Settings
from anabranch.lab.bench_live import Application
from anabranch.lab.plain_driver import Job
from anabranch.lab.plain_io import Into, plain_schema
from anabranch.lab.processes import with_children
from anabranch.lab.queries import QUERIES
from anabranch.log import names
from anabranch.log.connection import Access, connect
from anabranch.log.reading import call
from anabranch.log.server import Server, ServerSettings
from anabranch.log.store import SiteLog
from anabranch.protocols.records import Writer
from anabranch.site.cluster import free_ports
from anabranch.site.config import Schemas, Spark
from anabranch.site.tail import Tail
from anabranch.streams.batch import Batch, assemble, ints
from anabranch.streams.punctuation import BEGINNING

WINDOW = 4096
WAITING = 100
"""Records that may wait to be written."""


class PlainSpark:
    """One query of :data:`QUERIES`. Use it as an asynchronous context: no process is left behind."""

    def __init__(self, kind: str, directory: Path, spark: Spark, sync: str = "always") -> None:
        self.graph = QUERIES[kind]()
        self.directory = directory
        self._server = Server(
            ServerSettings("plain", directory / "log", port=free_ports(1)[0], sync=sync), bound=True
        )
        self._sources = {source.name: source.columns for source in self.graph.sources}
        output = self.graph.outputs[0]
        columns = self.graph.schema(output.stream)
        self._into = Into(self._server.url, self.graph.name, f"out/{output.stream}", columns)
        self.progress = directory / "progress.jsonl"
        settings = Settings(
            Where(self._server.url),
            str(directory / "spark"),
            "plain",
            spark.master,
            spark.memory,
            spark.partitions,
            batch_bytes=spark.batch_bytes,
            conf=spark.conf,
        )
        checkpoint = str(directory / "checkpoint")
        self._job = Job(
            kind, self.graph.name, self._sources, self._into, settings, checkpoint, str(self.progress)
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._leaving = False
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)
        self._started = threading.Event()
        self._writers = {stream: Writer(f"in/{stream}", 1) for stream in self._sources}
        self._written = dict.fromkeys(self._sources, 0)
        self._failures: list[BaseException] = []

    async def __aenter__(self) -> PlainSpark:
        self._server.start()
        try:
            schemas = Schemas(self.graph)
            self._schemas = {stream: schemas.rows(stream) for stream in self._sources}
            self._log = SiteLog(
                Access(self._server.url),
                self.graph.name,
                "plain",
                schemas.of_log,
                lambda _: None,
                lambda *_: None,
                self._failures.append,
            )
            self._connection = await connect(Access(self._server.url), "application", lambda: None)
            name = names.stream(self.graph.name, self._into.stream)
            subject = names.subject(self.graph.name, self._into.stream)
            config = {"name": name, "subjects": [subject], "storage": "file", "allow_direct": True}
            await call(self._connection.client, f"STREAM.CREATE.{name}", config)
            for writer in self._writers.values():
                writer.complete_from = BEGINNING
                self._log.do(writer.append(None))
            self._supervisor.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._leaving = True
        if self._supervisor.ident is not None:
            self._started.wait(10)
            self.kill()
            self._supervisor.join(20)
        with contextlib.suppress(AttributeError):
            await self._log.close()
            await self._connection.close()
        self._server.stop()

    # --- the supervisor

    def _supervise(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / "job.json"
        path.write_bytes(msgspec.json.encode(self._job))
        while not self._leaving:
            with (self.directory / "driver.err").open("ab") as errors:
                self._process = subprocess.Popen(  # noqa: S603 - ourselves
                    [sys.executable, "-m", "anabranch.lab.plain_driver", str(path)],
                    stdin=subprocess.DEVNULL,
                    stdout=errors,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self._started.set()
            self._process.wait()

    def kill(self) -> None:
        """SIGKILL to the driver, its Java and its workers; its logs and its checkpoint stay."""
        process = self._process
        if process is None:
            return
        for each in with_children(process.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()

    def processes(self) -> list[psutil.Process]:
        """Those of Spark and of the log server."""
        running = [self._process, self._server.process]
        return [found for each in running if each is not None for found in with_children(each.pid)]

    # --- in and out

    async def send(self, stream: str, rows: pa.RecordBatch) -> None:
        """``ts`` and the declared columns, as one record. Returns when there is room for more."""
        if self._failures:
            raise self._failures[0]
        schema = self._schemas[stream]
        assert schema is not None
        number = np.arange(self._written[stream], self._written[stream] + rows.num_rows)
        self._written[stream] += rows.num_rows
        ts = ints(rows.column(0))
        record = assemble(ts, number, number, rows.columns[1:], schema)
        self._log.do(self._writers[stream].append(record))
        while self._log.waiting > WAITING and not self._failures:
            await asyncio.sleep(0.002)

    def application(self) -> Application:
        return Application(self._results(), self._nothing)

    async def _nothing(self) -> None:
        """The connection closes with the rest."""

    async def _results(self) -> AsyncIterator[Batch]:
        schema = plain_schema(self._into.columns)
        come: asyncio.Queue[Batch] = asyncio.Queue()

        def take(position: int, data: bytes) -> None:
            come.put_nowait(pa.ipc.read_record_batch(pa.py_buffer(data), schema))

        name = names.stream(self.graph.name, self._into.stream)
        tail = Tail(self._connection.client, name, 0, WINDOW, take, lambda: False)
        await tail.open()
        running = asyncio.create_task(tail.run())
        try:
            while True:
                got = asyncio.create_task(come.get())
                await asyncio.wait({running, got}, return_when=asyncio.FIRST_COMPLETED)
                if running.done():
                    got.cancel()
                    running.result()
                yield await got
        finally:
            running.cancel()
