"""One life of a site's agent: the protocols' agent, and the log, branches, messages and timers that carry out
what it asks for. A life ends with a crash, or when the log is not what it has written."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable
from functools import partial

from anabranch.engines.spark.run import Command
from anabranch.log.store import Log, SiteLog
from anabranch.protocols.agent import Agent
from anabranch.protocols.effects import (
    Answer,
    Append,
    CloseBranch,
    Drop,
    Effect,
    OpenBranch,
    ReadLog,
    Report,
    Send,
    SetTimer,
    StartEngine,
    StopEngine,
    Trim,
)
from anabranch.protocols.fragment import EngineOf
from anabranch.protocols.ingress import Arrival
from anabranch.protocols.messages import Message
from anabranch.protocols.records import Record
from anabranch.site.ages import age
from anabranch.site.config import Schemas, SiteConfig
from anabranch.site.engines import Engines
from anabranch.site.executor import Executor, Table
from anabranch.site.journal import Journal
from anabranch.site.links import Links

LIFE_BITS = 38
_ENOUGH = 32 << 20
"""Bytes of a stream that may wait for this site's log before its branches are asked for no more."""


class Life:
    """``send`` brings a message to another node; ``ended`` is told, once, what it ended by. Where engines are
    processes of their own, ``say`` speaks to them and ``answer`` replies to what they hand over."""

    def __init__(
        self,
        config: SiteConfig,
        schemas: Schemas,
        engine_of: EngineOf,
        clock: Callable[[], int],
        send: Callable[[str, Message], None],
        journal: Journal,
        ended: Callable[[BaseException], None],
        say: Callable[[Command], None] | None = None,
        answer: Callable[[str, bytes], None] | None = None,
    ) -> None:
        self.config = config
        self.journal = journal
        self.agent = Agent(
            config.graph,
            config.site,
            config.sites,
            config.retention,
            config.settings,
            engine_of,
            secrets.randbits(LIFE_BITS),
            outside=say is not None,
        )
        self.log = SiteLog(
            config.access(config.site),
            config.query,
            config.site,
            schemas.of_log,
            self._on_appended,
            self._on_read,
            self._fail,
        )
        self.links = Links(
            config.site,
            config.query,
            config.access,
            schemas.rows,
            config.settings.branch_window,
            self,
            journal,
        )
        self._clock = clock
        self._send = send
        self._ended = ended
        self._arrivals: dict[str, _Arrivals] = {}
        self.engines: Engines | None = None
        table: Table = {
            Send: lambda effect: self._send(effect.to, effect.message),
            Append: self._do_append,
            Trim: self.log.do,
            Drop: self.log.do,
            ReadLog: self.log.do,
            OpenBranch: self.links.open,
            CloseBranch: self.links.close_branch,
            SetTimer: lambda effect: self._executor.after(effect.after, self._on_timer, effect.key),
            Report: lambda effect: journal.event(effect.event, epoch=self.epoch),
        }
        if say is not None and answer is not None:
            self.engines = Engines(config, schemas.rows, self.agent, clock, self._step, say, answer, journal)
            table[StartEngine] = self.engines.start
            table[StopEngine] = self.engines.stop
            table[Answer] = self.engines.answer
        self._executor: Executor = Executor(table, self._fail)

    @property
    def epoch(self) -> int:
        return self.agent.version[0]

    def start(self) -> None:
        self._executor.do(self.agent.start, self._clock(), self.config.plan)

    def _step(self, step: Callable[..., Iterable[Effect]], *arguments: object) -> None:
        self._executor.do(step, *arguments)

    async def close(self) -> None:
        """What has been given to the log may land or not."""
        self._executor.end()
        if self.engines is not None:
            self.engines.close()
        await self.links.close()
        await self.log.close()

    async def settle(self, patience: float) -> None:
        """Waits until the log has done what it was asked for, as long as ``patience`` seconds."""
        until = asyncio.get_running_loop().time() + patience
        while self.log.waiting and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.02)

    def _fail(self, error: BaseException) -> None:
        self._executor.end()
        self._ended(error)

    # --- what happens

    def on_message(self, sender: str, message: Message) -> None:
        self._executor.do(self.agent.on_message, self._clock(), sender, message)

    def _on_timer(self, key: str) -> None:
        self._executor.do(self.agent.on_timer, self._clock(), key)

    def _do_append(self, append: Append) -> None:
        rows = append.record.rows
        if rows is not None:
            self.journal.count("log_age_asked_us", age(rows, self._clock()), stream=append.stream)
        waiting = self._waiting(append.stream)
        if waiting is not None:
            waiting.appending += 1
            waiting.bytes += append.record.size
        self.log.do(append)

    def _on_appended(self, append: Append) -> None:
        rows = append.record.rows
        self.journal.count("log_records", stream=append.stream)
        if rows is not None:
            self.journal.count("log_rows", rows.num_rows, stream=append.stream)
            self.journal.count("log_age_us", age(rows, self._clock()), stream=append.stream)
        self._executor.do(self.agent.on_appended, self._clock(), append)
        waiting = self._waiting(append.stream)
        if waiting is not None:
            waiting.appending -= 1
            waiting.bytes -= append.record.size
            if not waiting.appending:
                self._take(waiting)
            if not self.is_busy(waiting.stream):
                self.links.go_on(waiting.stream)

    def _on_read(self, question: ReadLog, log: Log) -> None:
        self._executor.do(self.agent.on_log, self._clock(), question.stream, question.tag, log)

    # --- branches

    def on_opened(self, stream: str, source: str, position: int, resumed: bool) -> None:
        self._take(self._of(stream))
        self._executor.do(self.agent.on_opened, self._clock(), stream, source, position, resumed)

    def on_reset(self, stream: str, source: str) -> None:
        self._take(self._of(stream))
        self._executor.do(self.agent.on_reset, self._clock(), stream, source)

    def on_record(self, stream: str, source: str, position: int, record: Record) -> None:
        """While an append of the stream is on its way, what comes is kept, and then goes in one."""
        if record.rows is not None:
            branch = {"stream": stream, "branch": source}
            self.journal.count("branch_rows", record.rows.num_rows, **branch)
            self.journal.count("branch_age_us", age(record.rows, self._clock()), **branch)
        waiting = self._of(stream)
        if waiting.arrived_bytes + record.size > self.config.settings.message_bytes:
            self._take(waiting)
        waiting.add((source, position, record))
        if not waiting.appending and not waiting.scheduled:
            waiting.scheduled = True
            asyncio.get_running_loop().call_soon(partial(self._take, waiting))

    def is_busy(self, stream: str) -> bool:
        waiting = self._of(stream)
        return (
            waiting.bytes + waiting.arrived_bytes > _ENOUGH
            or waiting.appending + len(waiting.arrived) > self.config.settings.branch_window
        )

    def _of(self, stream: str) -> _Arrivals:
        waiting = self._arrivals.get(stream)
        if waiting is None:
            waiting = self._arrivals[stream] = _Arrivals(stream)
        return waiting

    def _waiting(self, log_stream: str) -> _Arrivals | None:
        kind, _, name = log_stream.partition("/")
        return self._of(name) if kind == "in" else None

    def _take(self, waiting: _Arrivals) -> None:
        waiting.scheduled = False
        if waiting.arrived:
            arrived = waiting.take()
            self._executor.do(self.agent.on_branches, self._clock(), waiting.stream, arrived)


class _Arrivals:
    """Of one ingress stream: records that have come and wait for the append before them, and how much of
    the log's is on its way."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.arrived: list[Arrival] = []
        self.arrived_bytes = 0
        self.appending = 0
        self.bytes = 0
        self.scheduled = False

    def add(self, arrival: Arrival) -> None:
        self.arrived.append(arrival)
        self.arrived_bytes += arrival[2].size

    def take(self) -> list[Arrival]:
        arrived, self.arrived, self.arrived_bytes = self.arrived, [], 0
        return arrived
