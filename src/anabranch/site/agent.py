"""A site's agent at work: its lives, one after the other, what others say to it, and how it stands."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import msgspec
from nats.aio.msg import Msg

from anabranch.engines.arrow import ArrowEngine
from anabranch.engines.spark.run import Command, Event
from anabranch.log import names
from anabranch.log.codec import Malformed
from anabranch.log.connection import FAILURES
from anabranch.log.reading import PATIENCE
from anabranch.log.store import LogLost
from anabranch.plan import Plan
from anabranch.protocols.events import Rejected
from anabranch.protocols.fragment import EngineOf
from anabranch.protocols.messages import Message
from anabranch.site import wire
from anabranch.site.attached import Attached
from anabranch.site.backoff import Backoff
from anabranch.site.clock import Clock
from anabranch.site.config import Deployment, Schemas, SiteConfig, Spark
from anabranch.site.driver import Driver, settings_of
from anabranch.site.gate import Gate
from anabranch.site.http.endpoint import Endpoint
from anabranch.site.http.settings import Http
from anabranch.site.journal import Journal
from anabranch.site.life import Life
from anabranch.site.metrics import MetricsServer
from anabranch.site.post import Hear, Line
from anabranch.site.questions import PLAN
from anabranch.site.refusals import Refusals
from anabranch.site.screen import MESSAGE_MOST, Screen
from anabranch.site.spark_work import SparkWork
from anabranch.site.status import SiteStatus, samples, status

MOST_LIVES = 10
"""Lives that may end within a minute."""


class AgentFailed(RuntimeError):
    """The agent cannot go on: the sentence says why."""


class SiteAgent:
    """``run`` until ``stop``. ``engine_of`` makes what computes a fragment: the Arrow engine unless given."""

    def __init__(self, config: SiteConfig, journal: Journal, engine_of: EngineOf | None = None) -> None:
        self.config = config
        self.journal = journal
        self.clock = Clock(config.directory / "clock-offset")
        self.lives = 0
        self.life: Life | None = None
        self.metrics_port = self.http_port = 0
        self._engine_of = engine_of or self._arrow
        self._schemas = Schemas(config.graph)
        self._screen = Screen(config.graph, config.sites, MESSAGE_MOST)
        self._gate = Gate(config.graph)
        self._lines: dict[str, Line] = {}
        self._stopping = asyncio.Event()
        self._ended: asyncio.Future[BaseException] | None = None
        self._driver: Driver | None = None
        self._endpoint: Endpoint | None = None
        self._spark_work = SparkWork(self._say, self._reply, journal)
        self._attached = Attached(config, lambda: self.deployment, self._spark_work, journal)

    def _arrow(self, operators: tuple[str, ...], exports: tuple[str, ...]) -> ArrowEngine:
        return ArrowEngine(self.config.graph, operators, exports, self.config.site)

    @property
    def ready(self) -> bool:
        """Whether it hears what is said to it."""
        own = self._lines.get(self.config.site)
        return self.life is not None and own is not None and own.connected

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        config = self.config
        own: dict[str, Hear] = {
            names.inbox(config.query, config.site): self._hear,
            names.status(config.query, config.site): self._tell_status,
            names.gate(config.query, config.site): self._let_in,
        }
        if config.spark is not None:
            own[names.engine(config.query)] = self._take_over
        if config.attaches_spark:
            own[names.fetched(config.query)] = self._take_fetched
        computes = any(config.site in sites for sites in config.plan.replicas.values())
        if config.attaches_spark or (computes and config.spark is not None):
            # Before the first tuple: it takes seconds to start.
            self._start_driver(config.spark or config.driver or Spark())
        refusals = None if config.log is None else Refusals(config.log.log_file, self.journal)
        metrics = MetricsServer(
            lambda: samples(self.status(), self.journal), lambda: self.journal.count("refused", why="http")
        )
        self.metrics_port = await metrics.start(config.metrics_port)
        self._lines = {
            site: Line(site, config.site, config.access, own if site == config.site else {}, self.journal)
            for site in config.sites
        }
        try:
            if config.http is not None:
                self._endpoint = self._make_endpoint(config.http)
                self.http_port = await self._endpoint.start()
            await self._live()
        finally:
            await self._leave()
            if self._driver is not None:
                await self._driver.close()
            await asyncio.gather(*(line.close() for line in self._lines.values()))
            await metrics.close()
            if refusals is not None:
                await refusals.close()

    async def _live(self) -> None:
        stopping: asyncio.Future[Any] = asyncio.create_task(self._stopping.wait())
        ends: list[float] = []
        backoff = Backoff(0.2, 5.0)
        try:
            while not self._stopping.is_set():
                self._ended = asyncio.get_running_loop().create_future()
                life = self._begin(self._ended)
                self._attached.start()
                await asyncio.wait([self._ended, stopping], return_when=asyncio.FIRST_COMPLETED)
                if self._stopping.is_set():
                    await self._leave()
                    await life.settle(2.0)
                await life.close()
                # What it had brought or received may not be in the log of the next one: that is asked anew.
                await self._attached.close()
                if not self._ended.done():
                    break
                error = self._ended.result()
                self.journal.count("lives_ended")
                self.journal.write("life ended", why=f"{type(error).__name__}: {error}", lives=self.lives)
                ends = [*ends, time.monotonic()][-MOST_LIVES:]
                if not isinstance(error, LogLost) or (len(ends) == MOST_LIVES and ends[-1] - ends[0] < 60):
                    raise AgentFailed(f"site {self.config.site}: {error}") from error
                await asyncio.wait({stopping}, timeout=backoff.pause())
        finally:
            stopping.cancel()

    def _begin(self, ended: asyncio.Future[BaseException]) -> Life:
        def on_end(error: BaseException) -> None:
            if not ended.done():
                ended.set_result(error)

        self.lives += 1
        spark = self.config.spark
        self.life = Life(
            self.config,
            self._schemas,
            self._engine_of,
            self.clock,
            self._send,
            self.journal,
            on_end,
            None if spark is None else self._say,
            None if spark is None else self._reply,
        )
        self.journal.write("life begins", lives=self.lives)
        self.life.start()
        return self.life

    # --- what clients reach

    @property
    def deployment(self) -> Deployment:
        """For producers and applications at this site, under the plan of now."""
        config = self.config
        return Deployment(config.graph, self._plan(), config.servers, config.settings, config.client_tls)

    def _plan(self) -> Plan:
        plan = None if self.life is None else self.life.agent.plan
        return self.config.plan if plan is None else plan

    def _make_endpoint(self, http: Http) -> Endpoint:
        return Endpoint(
            http,
            self.deployment,
            self.config.site,
            self.config.directory,
            self._plan,
            self.clock,
            lambda: None if self.life is None else self.status(),
            lambda: samples(self.status(), self.journal),
            self.journal,
        )

    async def _leave(self) -> None:
        """Nothing more comes in or goes out here."""
        await self._attached.close()
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            await endpoint.close()

    # --- the engine process

    def _say(self, command: Command) -> None:
        if self._driver is not None:
            self._driver.say(command)
        elif self.config.spark is not None:
            self._start_driver(self.config.spark)

    def _start_driver(self, spark: Spark) -> None:
        self._driver = Driver(
            settings_of(self.config, spark),
            self.journal,
            self._on_driver,
            self._on_driver_gone,
            self._on_driver_failed,
        )

    def _on_driver(self, event: Event) -> None:
        attached = self._spark_work.on_event(event)
        if not attached and self.life is not None and self.life.engines is not None:
            self.life.engines.on_event(event)

    def _on_driver_gone(self) -> None:
        self._spark_work.on_gone()
        if self.life is not None and self.life.engines is not None:
            self.life.engines.on_gone()

    def _on_driver_failed(self, error: BaseException) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(error)

    async def _take_over(self, received: Msg) -> None:
        if self.life is not None and self.life.engines is not None:
            self.life.engines.on_handover(received.data, received.reply)

    async def _take_fetched(self, received: Msg) -> None:
        self._spark_work.on_handover(received.data, received.reply)

    def _reply(self, to: str, data: bytes) -> None:
        self._lines[self.config.site].send(to, data)

    # --- messages

    def _send(self, to: str, message: Message) -> None:
        """To another site over the line to it; to a client over this site's own server, where it listens."""
        config = self.config
        data = wire.encode(config.site, message)
        if to in self._lines:
            self._lines[to].send(names.inbox(config.query, to, config.site), data)
        else:
            self._lines[config.site].send(names.client(config.query, to), data)

    async def _hear(self, received: Msg) -> None:
        try:
            sender, message = wire.decode(received.data)
            if received.subject != names.inbox(self.config.query, self.config.site, sender):
                raise Malformed(f"a message from somebody who is not {sender[:40]!r}; nothing was done")
            self._screen(sender, message)
        except Malformed as error:
            self.journal.event(Rejected("?", self.config.site, str(error)))
            return
        self.journal.count("messages", kind=type(message).__name__)
        if self.life is not None:
            self.life.on_message(sender, message)

    # --- how it stands

    def status(self) -> SiteStatus:
        assert self.life is not None
        peers = {site: line.connected for site, line in self._lines.items() if site != self.config.site}
        ready = self._driver is not None and self._driver.ready
        return status(
            self.life,
            self.lives,
            peers,
            self.metrics_port,
            self.http_port,
            self.clock(),
            ready,
            self._attached.under_way,
        )

    async def _tell_status(self, received: Msg) -> None:
        if received.reply and self.life is not None:
            plan = self.life.agent.plan if received.data == PLAN else None
            self._reply(received.reply, msgspec.json.encode(plan or self.status()))

    async def _let_in(self, received: Msg) -> None:
        """For those that may not ask the log server themselves: see :mod:`anabranch.site.gate`."""
        if received.reply and self.life is not None:
            with contextlib.suppress(*FAILURES):
                async with asyncio.timeout(PATIENCE):
                    connection = await self.life.log.connection()
                    self._reply(received.reply, await self._gate(connection.client, received.data))
