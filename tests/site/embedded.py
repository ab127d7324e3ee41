"""Real servers with agents in this very process, a relay that can be cut, and the one assertion."""

import asyncio
import contextlib
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import anabranch as ab
from anabranch.graph import Graph
from anabranch.log.server import Server, ServerSettings
from anabranch.plan import Plan
from anabranch.protocols.settings import Settings
from anabranch.site.agent import SiteAgent
from anabranch.site.config import Deployment, SiteConfig
from anabranch.site.http.settings import Http
from anabranch.site.journal import Journal
from anabranch.site.subscription import Receiver
from anabranch.streams.batch import Batch

SECOND = 1_000_000
NOON = 1_700_000_000 * SECOND


def run(work: Coroutine[Any, Any, None], patience: float = 90) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(patience):
            await work

    asyncio.run(bounded())


def free_port() -> int:
    while True:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def busy_query() -> ab.Query:
    q = ab.Query("busy")
    q.output("alerts", q.source("load", "host string, load double").where("load > 0.5", name="busy"))
    return q


def loads(count: int, seconds: float, seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    ts = NOON + np.sort(rng.integers(0, int(seconds * SECOND), count))
    hosts = [f"h{i}" for i in rng.integers(0, 6, count)]
    return pa.table(
        {"ts": pa.array(ts).cast(pa.timestamp("us", "UTC")), "host": hosts, "load": rng.random(count)}
    )


def rows_of(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))


def assert_ideal(
    query: ab.Query, inputs: Mapping[str, pa.Table], received: Mapping[str, Sequence[Batch]], plan: Plan
) -> None:
    """What every application received is the ideal run's, each tuple once, ids included."""
    ideal = ab.ideal(query, inputs)
    for subscription in plan.subscriptions:
        wanted = ideal[subscription.output]
        assert wanted.num_rows
        batches = received[subscription.name]
        assert batches, f"{subscription.name} received nothing"
        got = pa.Table.from_batches(batches)
        names = ["ts" if name == "_ts" else name for name in got.column_names]
        got = got.rename_columns(names).select(wanted.column_names)
        missing, extra = rows_of(wanted) - rows_of(got), rows_of(got) - rows_of(wanted)
        assert not missing, f"{subscription.name} lacks {missing.total()}"
        assert not extra, f"{subscription.name} received {extra.total()} too many"


class Sites:
    """Sites whose agents run in this process, each with a server of its own."""

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        names: Sequence[str],
        directory: Path,
        settings: Settings | None = None,
        http: Http | None = None,
    ) -> None:
        self.http = http
        self.graph = graph
        self.plan = plan
        self.names = tuple(names)
        self.settings = settings or Settings()
        self.servers = {
            name: Server(ServerSettings(name, directory / name / "log", port=free_port()), bound=True)
            for name in names
        }
        self.urls = {name: server.url for name, server in self.servers.items()}
        self.agents: dict[str, SiteAgent] = {}
        self.journals = {name: Journal(directory / name / "agent.jsonl", site=name) for name in names}
        self._directory = directory
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> "Sites":
        try:
            for name, server in self.servers.items():
                server.start()
                self.start(name)
            while not all(agent.ready for agent in self.agents.values()):
                await asyncio.sleep(0.01)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for agent in self.agents.values():
            agent.stop()
        results = await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for server in self.servers.values():
            server.stop()
        for journal in self.journals.values():
            journal.close()
        assert results == [None] * len(results), results

    def start(self, name: str) -> None:
        config = SiteConfig(
            name,
            self._directory / name,
            self.graph,
            self.plan,
            self.urls,
            600 * SECOND,
            self.settings,
            http=self.http,
        )
        self.agents[name] = SiteAgent(config, self.journals[name])
        self._tasks[name] = asyncio.create_task(self.agents[name].run())

    def deployment(self, **servers: str) -> Deployment:
        return Deployment(self.graph, self.plan, {**self.urls, **servers}, self.settings)


async def take_all(receiver: Receiver) -> list[Batch]:
    async with receiver:
        return [rows async for rows in receiver]


class Relay:
    """Between a client and a server: what goes through can be cut, and held."""

    def __init__(self, port: int) -> None:
        self.to = port
        self.port = 0
        self.open = asyncio.Event()
        self.open.set()
        self.accepted = 0
        self._server: asyncio.Server | None = None
        self._pipes: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Relay"]:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self._server.close()
            self.cut()
            for pipe in self._pipes:
                pipe.cancel()
            await asyncio.gather(*self._pipes, return_exceptions=True)
            await asyncio.sleep(0)

    def cut(self) -> None:
        """All connections of now break."""
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.to)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        for a, b in ((reader, back), (there, writer)):
            pipe = asyncio.create_task(self._pipe(a, b))
            self._pipes.add(pipe)
            pipe.add_done_callback(self._pipes.discard)

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self.open.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
        self._writers.discard(writer)
