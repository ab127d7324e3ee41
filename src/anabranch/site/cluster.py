"""Sites on this machine, as real processes: for demonstrations, tests, and trying a query out."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import psutil
import pyarrow as pa

from anabranch.graph import Graph
from anabranch.input_tables import HasGraph, graph_of
from anabranch.log.connection import FAILURES, Access
from anabranch.log.server import ServerSettings
from anabranch.plan import Plan, check_plan
from anabranch.protocols.settings import Settings
from anabranch.site import keys
from anabranch.site.accounts import configuration
from anabranch.site.config import Deployment, SiteConfig, Spark, check_parts, delivered_at, fetched_at
from anabranch.site.http.settings import Http
from anabranch.site.journal import Journal, words_to
from anabranch.site.producer import Producer
from anabranch.site.questions import offer, status_at
from anabranch.site.replay import Pace, Replay, first_arrival
from anabranch.site.sinks.settings import SinkSettings
from anabranch.site.sources.settings import SourceSettings
from anabranch.site.status import SiteStatus
from anabranch.site.subscription import Receiver
from anabranch.streams.batch import Batch
from anabranch.topology import Topology

Resolve = Callable[[str, str], tuple[str, int]]
"""Host and port at which one site reaches the log server of another."""


class ClusterError(RuntimeError):
    """The sites do not run as they should: the sentence says which and where to look."""


class Cluster:
    """The sites of ``topology``, each under ``directory``. ``resolve``: where links go that lead through
    something (an emulator of a wide area); unless given, straight to the server. ``spark``: of all sites, or
    of each. ``secure``: with certificates and permissions, as between hosts. ``http``: the endpoint of every
    site, each at a port of its own. ``sources`` are fetched by each entry point, or by the first where only
    one may, ``sinks`` delivered to where their applications are; or each site has its own. ``driver``: of
    sites whose fragments run on Arrow, for sources and sinks that are Spark's.

    Use it as an asynchronous context: whatever happens, no process is left behind.
    """

    def __init__(
        self,
        query: Graph | HasGraph,
        topology: Topology,
        plan: Plan,
        directory: Path,
        settings: Settings | None = None,
        resolve: Resolve | None = None,
        sync: str = "always",
        spark: Spark | Mapping[str, Spark | None] | None = None,
        secure: bool = False,
        http: Http | None = None,
        sources: Sequence[SourceSettings] | Mapping[str, Sequence[SourceSettings]] = (),
        sinks: Sequence[SinkSettings] | Mapping[str, Sequence[SinkSettings]] = (),
        driver: Mapping[str, Spark | None] | None = None,
    ) -> None:
        self.graph = graph_of(query)
        check_plan(plan, self.graph, topology)
        self.topology = topology
        self.plan = plan
        self.directory = directory
        self.settings = settings or Settings()
        count = len(topology.names)
        ports = free_ports(2 * count)
        self.ports = dict(zip(topology.names, ports[:count], strict=True))
        self.http_ports = dict(zip(topology.names, ports[count:], strict=True))
        self.journal = Journal(directory / "clients.jsonl")
        self._resolve = resolve or self.server_of
        self._sync = sync
        self._spark = spark if isinstance(spark, Mapping) else dict.fromkeys(topology.names, spark)
        self._keys = directory / "keys" if secure else None
        if self._keys is not None:
            keys.create(self._keys, {site: ["127.0.0.1"] for site in topology.names})
        self._http = http
        self._sources = sources
        self._sinks = sinks
        for site in topology.names:
            check_parts(self.graph, plan, self._sources_of(site), self._sinks_of(site), f"site {site!r}")
        self._driver = driver or {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def server_of(self, site: str, to: str) -> tuple[str, int]:
        """The log server of ``to`` itself."""
        return "127.0.0.1", self.ports[to]

    def url(self, site: str, to: str) -> str:
        host, port = self.server_of(site, to) if site == to else self._resolve(site, to)
        return f"{'nats' if self._keys is None else 'tls'}://{host}:{port}"

    def deployment(self, near: str, role: str = "client") -> Deployment:
        """For clients at the place of a site; ``role`` as in :data:`anabranch.site.keys.CLIENTS`."""
        servers = {site: self.url(near, site) for site in self.topology.names}
        tls = None if self._keys is None else keys.of_client(self._keys, role)
        return Deployment(self.graph, self.plan, servers, self.settings, tls, keys.CLIENTS[role])

    def _access(self, site: str) -> Access:
        """To its server, past any emulator."""
        return self.deployment(site, "operator").access(site)

    # --- putting up and down

    async def __aenter__(self) -> Cluster:
        try:
            for site in self.topology.names:
                self.start(site)
            await self.ready()
        except BaseException:
            self.stop_all()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop_all()

    def start(self, site: str) -> None:
        """Starts a site that does not run, with the log it has left."""
        if self._runs(site):
            return
        directory = self.directory / site
        directory.mkdir(parents=True, exist_ok=True)
        config = SiteConfig(
            site,
            directory,
            self.graph,
            self.plan,
            {other: self.url(site, other) for other in self.topology.names},
            self.topology.site(site).retention,
            self.settings,
            self._server(site),
            self._spark.get(site),
            None if self._keys is None else keys.of_site(self._keys, site),
            bound=True,
            http=self._http_of(site),
            client_tls=None if self._keys is None else keys.of_endpoint(self._keys, site),
            sources=self._sources_of(site),
            sinks=self._sinks_of(site),
            driver=self._driver.get(site),
        )
        path = directory / "site.json"
        path.write_bytes(config.to_json())
        with words_to(directory / "site.err") as errors:
            self._processes[site] = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-m", "anabranch.site.process", str(path)],
                stdin=subprocess.PIPE,
                stdout=errors,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _server(self, site: str) -> ServerSettings:
        extra = ""
        if self._keys is not None:
            extra = configuration(self.graph, site, self.topology.names, keys.of_site(self._keys, site))
        return ServerSettings(
            site, self.directory / site / "log", port=self.ports[site], sync=self._sync, extra=extra
        )

    def _sources_of(self, site: str) -> tuple[SourceSettings, ...]:
        if isinstance(self._sources, Mapping):
            return tuple(self._sources.get(site, ()))
        return fetched_at(site, self._sources, self.plan)

    def _sinks_of(self, site: str) -> tuple[SinkSettings, ...]:
        if isinstance(self._sinks, Mapping):
            return tuple(self._sinks.get(site, ()))
        return delivered_at(site, self._sinks, self.plan)

    def _http_of(self, site: str) -> Http | None:
        return None if self._http is None else msgspec.structs.replace(self._http, port=self.http_ports[site])

    async def ready(self, patience: float = 60.0) -> None:
        """Until every site that was started answers."""
        until = time.monotonic() + patience
        for site in list(self._processes):
            while True:
                with contextlib.suppress(*FAILURES):
                    await self.status(site)
                    break
                if not self._runs(site) or time.monotonic() > until:
                    raise ClusterError(f"site {site!r} does not come up; look at {self.directory / site}")
                await asyncio.sleep(0.05)

    def stop_all(self) -> None:
        """Asks every site to stop, and kills those that do not."""
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        for site, process in self._processes.items():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill_site(site)
            assert process.stdin is not None
            process.stdin.close()
        self._processes.clear()
        self.journal.close()

    def terminate(self, site: str) -> None:
        """Asks a site to stop."""
        self._processes[site].terminate()

    def _runs(self, site: str) -> bool:
        process = self._processes.get(site)
        return process is not None and process.poll() is None

    # --- faults

    def pid(self, site: str, child: str) -> int:
        """Of a site's "agent", "nats" or "driver" (Spark's), waiting for one that is just being started."""
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with contextlib.suppress(OSError, ValueError, psutil.Error):
                pid = self._driver_pid(site) if child == "driver" else self._child(site, child)
                os.kill(pid, 0)
                return pid
            time.sleep(0.01)
        raise ClusterError(f"site {site!r} has no {child}; look at {self.directory / site}")

    def processes(self, site: str) -> list[psutil.Process]:
        """All that the site has running now."""
        process = self._processes.get(site)
        if process is None:
            return []
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(process.pid)
            return [root, *root.children(recursive=True)]
        return []

    def _child(self, site: str, child: str) -> int:
        return int((self.directory / site / f"{child}.pid").read_text("utf-8"))

    def _driver_pid(self, site: str) -> int:
        """The agent starts it."""
        for process in psutil.Process(self._child(site, "agent")).children():
            if "anabranch.engines.spark.driver" in process.cmdline():
                return int(process.pid)
        raise ProcessLookupError

    def kill(self, site: str, child: str) -> None:
        """SIGKILL to its "agent", "nats" or "driver" alone; the site starts it again."""
        os.kill(self.pid(site, child), signal.SIGKILL)

    def kill_site(self, site: str, lose_log: bool = False) -> None:
        """SIGKILL to all of it, as a power failure. :meth:`start` brings it back."""
        children = [self.pid(site, child) for child in ("agent", "nats") if self._has(site, child)]
        process = self._processes[site]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
        for pid in children:
            _wait_gone(pid)
        for child in ("agent", "nats"):
            (self.directory / site / f"{child}.pid").unlink(missing_ok=True)
        if lose_log:
            shutil.rmtree(self.directory / site / "log", ignore_errors=True)

    def _has(self, site: str, child: str) -> bool:
        return (self.directory / site / f"{child}.pid").is_file()

    def set_clock(self, site: str, offset: float) -> None:
        """From now on the site's clock is ahead of this machine's by so many seconds."""
        (self.directory / site / "clock-offset").write_text(str(round(offset * 1e6)), "utf-8")
        os.kill(self.pid(site, "agent"), signal.SIGHUP)

    async def install(self, plan: Plan) -> None:
        """Tells every site that answers; the others learn of it from these."""
        check_plan(plan, self.graph, self.topology)
        self.plan = plan
        for site in self.topology.names:
            with contextlib.suppress(*FAILURES):
                await offer(self._access(site), self.graph.name, site, plan)

    # --- looking, feeding, receiving

    async def status(self, site: str) -> SiteStatus:
        """Raises one of :data:`anabranch.log.connection.FAILURES` if the site does not answer."""
        return await status_at(self._access(site), self.graph.name, site)

    def producer(self, source: str, near: str | None = None) -> Producer:
        """Of a source, at the place of a site: unless given, that of its first entry point."""
        entries = self.plan.entries[source]
        return Producer(self.deployment(near or entries[0]), source, journal=self.journal)

    async def feed(self, inputs: Mapping[str, pa.Table], speed: float = 1.0) -> None:
        """Every source that has a table from it, each tuple at its time. Returns once all of it is safe: the
        streams have ended."""
        sources = {source.name: source for source in self.graph.sources if source.name in inputs}
        firsts = [first_arrival(source, inputs[name]) for name, source in sources.items()]
        pace = Pace(min((first for first in firsts if first is not None), default=0), speed)
        async with asyncio.TaskGroup() as feeding:
            for name in sources:
                feeding.create_task(self._feed(name, inputs[name], pace))

    async def _feed(self, name: str, table: pa.Table, pace: Pace) -> None:
        source = next(each for each in self.graph.sources if each.name == name)
        entries = self.plan.entries[name]
        apart = [(entry,) for entry in entries] if source.identity != "sequence" else [entries]
        async with asyncio.TaskGroup() as feeding:
            for each in apart:
                alone = len(apart) == 1 or source.identity == "partition"
                called = name if alone else f"{name}@{each[0]}"
                feeding.create_task(self._feed_by(called, name, each, Replay(source, table, pace)))

    async def _feed_by(self, called: str, source: str, entries: tuple[str, ...], replay: Replay) -> None:
        deployment = self.deployment(entries[0])
        producer = Producer(deployment, source, called, entries, replay.arrived, self.journal)
        async with producer:
            await replay.feed(producer)

    def receiver(self, name: str) -> Receiver:
        """The application ``name`` of the plan, at the place of its site."""
        near = next(s.site for s in self.plan.subscriptions if s.name == name)
        return Receiver(self.deployment(near), name, self.journal)

    def near(self, output: str) -> Deployment:
        """For an application of ``output``, at the place of its first subscription."""
        sites = [s.site for s in self.plan.subscriptions if s.output == output]
        return self.deployment(sites[0] if sites else self.topology.names[0])

    async def collect(self) -> dict[str, list[Batch]]:
        """What every application of the plan receives, to the end of its stream."""
        received: dict[str, list[Batch]] = {s.name: [] for s in self.plan.subscriptions}

        async def take(name: str) -> None:
            async with self.receiver(name) as receiver:
                async for rows in receiver:
                    received[name].append(rows)

        async with asyncio.TaskGroup() as taking:
            for name in received:
                taking.create_task(take(name))
        return received


def free_ports(count: int) -> list[int]:
    """Below those that the system gives to outgoing connections: a server that is started again must find its
    own free. Those in use are passed over."""
    found: list[int] = []
    for port in random.sample(range(15_000, 32_000), 2000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise ClusterError(f"there are no {count} free ports on this machine")


def _wait_gone(pid: int, patience: float = 10.0) -> None:
    until = time.monotonic() + patience
    while time.monotonic() < until:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return
        except psutil.NoSuchProcess:
            return
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
