"""The event loop: real agents, applications and producers over a simulated network, disks and clocks, from
one seed.

Everything that happens is an entry of one queue, ordered by time and then by when it was scheduled; so the
same arguments give the same run, byte for byte.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from anabranch.engines.arrow import ArrowEngine
from anabranch.graph import Graph
from anabranch.plan import Plan
from anabranch.protocols.agent import Agent
from anabranch.protocols.application import Application
from anabranch.protocols.effects import (
    Answer,
    Append,
    CloseBranch,
    Deliver,
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
from anabranch.protocols.events import Event
from anabranch.protocols.messages import Accepted, Message, Needed, PlanOffer, Resend
from anabranch.protocols.producer import Producer
from anabranch.protocols.records import Record
from anabranch.protocols.settings import Settings
from anabranch.sim.disk import Connection, Disk
from anabranch.sim.faults import (
    Burst,
    ClockOffset,
    Crash,
    EngineCrash,
    Fault,
    Redeliver,
    Reopen,
    Replan,
    SlowDisk,
)
from anabranch.sim.fingerprint import Fingerprint, size
from anabranch.sim.network import SECOND, Network
from anabranch.sim.nodes import ApplicationNode, Node, Offer, ProducerNode, SiteNode
from anabranch.sim.outside import Engines
from anabranch.streams.batch import Batch
from anabranch.topology import Topology


class Simulation:
    def __init__(
        self,
        graph: Graph,
        topology: Topology,
        plan: Plan,
        faults: Sequence[Fault],
        settings: Settings,
        engine_of: Callable[[tuple[str, ...], tuple[str, ...], str], ArrowEngine],
        begin: int,
        seed: int = 0,
        fingerprint: bool = True,
        outside: bool = False,
    ) -> None:
        self.now = begin
        self.graph = graph
        self.topology = topology
        self.plan = plan
        self.faults = tuple(faults)
        self.settings = settings
        self.events: list[tuple[int, Event]] = []
        self.network = Network(topology, self.faults)
        self.fingerprint = Fingerprint() if fingerprint else None
        self.steps = 0
        self.kept: dict[str, list[Record]] = {}
        """Records of the entry points' logs of the sources whose timestamps these give."""
        self._engine_of = engine_of
        self._outside = outside
        self._engines = Engines(self, engine_of, seed)
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._scheduled = 0
        self._lives = (seed % 2**24) << 12
        self._connections = 0
        self._work: deque[tuple[Node, Effect]] = deque()
        self._working = False
        self._unfinished = 0
        self._slow_disks = [f for f in self.faults if isinstance(f, SlowDisk)]
        self._clocked = {f"out/{s.name}" for s in graph.sources if s.timestamps == "entry"}
        self.sites = {name: SiteNode(name) for name in topology.names}
        self.applications: dict[str, ApplicationNode] = {}
        self.producers: dict[str, ProducerNode] = {}
        self.nodes: dict[str, Node] = dict(self.sites)
        self._do: dict[type, Callable[[Any, Any], None]] = {
            Send: self._do_send,
            Append: self._do_append,
            Trim: self._do_trim,
            Drop: self._do_drop,
            ReadLog: self._do_read,
            OpenBranch: self._do_open,
            CloseBranch: self._do_close,
            SetTimer: self._do_timer,
            Report: self._do_report,
            Deliver: self._do_deliver,
            StartEngine: self._engines.start,
            StopEngine: self._engines.stop,
            Answer: self._engines.answer,
        }

    # --- the queue

    def at(self, time: int, action: Callable[..., None], *arguments: Any) -> None:
        self._scheduled += 1
        heapq.heappush(self._queue, (time, self._scheduled, action, arguments))

    def run(self, horizon: int) -> None:
        """Until every application has seen the end of its stream, or nothing happens before ``horizon``."""
        queue = self._queue
        while queue and self._unfinished:
            time, _, action, arguments = heapq.heappop(queue)
            if time > horizon:
                break
            self.now = time
            self.steps += 1
            action(*arguments)

    def execute(self, node: Node, effects: list[Effect]) -> None:
        """Carries out effects, and those they lead to at once, in order."""
        self._work.extend((node, effect) for effect in effects)
        if self._working:
            return
        self._working = True
        while self._work:
            actor, effect = self._work.popleft()
            self._do[type(effect)](actor, effect)
        self._working = False

    # --- putting it up

    def add_application(self, application: Application, place: str) -> None:
        node = ApplicationNode(application, place)
        self.applications[application.name] = self.nodes[application.name] = node
        self._unfinished += 1

    def add_producer(self, producer: Producer, name: str, place: str, offers: list[Offer]) -> None:
        node = ProducerNode(producer, name, place)
        self.producers[name] = self.nodes[name] = node
        for time, rows in offers:
            self.at(time, self._offer, node, rows)

    def start(self) -> None:
        for fault in self.faults:
            self._arrange(fault)
        for site in self.sites.values():
            self._boot(site)
        for application in self.applications.values():
            self._connect(application, self.plan)
            self.at(self.now + self.settings.tick, self._tick_application, application)
        for producer in self.producers.values():
            self.execute(producer, producer.producer.start(self.now))

    def _arrange(self, fault: Fault) -> None:
        begin = round(fault.at * SECOND)
        match fault:
            case Crash():
                self.at(begin, self._crash, fault)
                if fault.until is not None:
                    self.at(round(fault.until * SECOND), self._boot, self.sites[fault.site])
            case EngineCrash():
                self.at(begin, self._engines.crash, self.sites[fault.site], fault)
            case ClockOffset():
                self.at(begin, self._step_clock, fault)
            case Reopen():
                self.at(begin, self._reset, fault.a, fault.b)
            case Redeliver():
                self.at(begin, self._redeliver, fault)
            case Replan():
                self.at(begin, self._replan, fault)
            case Burst():
                for node in self.producers.values():
                    if node.producer.source.name == fault.source:
                        node.bursts.append((begin, round(fault.until * SECOND)))

    # --- sites

    def _boot(self, site: SiteNode) -> None:
        if site.agent is not None:
            return
        self._lives += 1
        site.life += 1
        site.disk_free = site.disk_next = self.now
        site.disk_queue = 0
        retention = self.topology.site(site.name).retention
        names = tuple(self.sites)
        site.agent = Agent(
            self.graph,
            site.name,
            names,
            retention,
            self.settings,
            lambda operators, exports: self._engine_of(operators, exports, site.name),
            self._lives,
            self._outside,
        )
        self.execute(site, site.agent.start(site.local(self.now), self.plan))

    def _crash(self, fault: Crash) -> None:
        site = self.sites[fault.site]
        if site.agent is None:
            return
        site.agent = None
        site.life += 1
        site.connections.clear()
        site.engines.clear()
        if not fault.keep_log:
            site.disk = Disk()
            site.checkpoints.clear()
        for stream in site.disk.streams.values():
            stream.lose_tail(fault.lose_tail)

    def _step_clock(self, fault: ClockOffset) -> None:
        site = self.sites[fault.site]
        site.clock = (round(fault.by * SECOND), self.now, fault.skew)

    def _replan(self, fault: Replan) -> None:
        site = self.sites[fault.site]
        if site.agent is not None:
            self.execute(site, site.agent.install(site.local(self.now), fault.plan))

    def _do_timer(self, node: Node, effect: SetTimer) -> None:
        life = node.life if isinstance(node, SiteNode) else 0
        self.at(self.now + max(1, effect.after), self._timer, node, effect.key, life)

    def _timer(self, node: Node, key: str, life: int) -> None:
        if isinstance(node, ProducerNode):
            self.execute(node, node.producer.on_timer(self.now, key))
        elif isinstance(node, SiteNode) and node.life == life and node.agent is not None:
            self.execute(node, node.agent.on_timer(node.local(self.now), key))

    # --- the log of a site

    def _do_append(self, site: SiteNode, effect: Append) -> None:
        self._on_disk(site, self._appended, effect, self._disk_delay(site))

    def _on_disk(
        self, site: SiteNode, action: Callable[[SiteNode, Any, int], None], effect: Effect, delay: int = 0
    ) -> None:
        """What a site's log is asked for happens in order, each behind all that is on its way. What waits
        while the disk is busy goes in one write: a slow disk is late, but does not fall behind for ever."""
        if delay == 0 and not site.disk_queue:
            action(site, effect, site.life)
            return
        if delay and self.now >= site.disk_next:
            site.disk_next = max(site.disk_free, self.now)
            site.disk_free = site.disk_next + delay
        site.disk_queue += 1
        self.at(site.disk_free, self._from_disk_queue, site, action, effect, site.life)

    def _from_disk_queue(
        self, site: SiteNode, action: Callable[[SiteNode, Any, int], None], effect: Effect, life: int
    ) -> None:
        if site.life == life:
            site.disk_queue -= 1
            action(site, effect, life)

    def _disk_delay(self, site: SiteNode) -> int:
        for fault in self._slow_disks:
            slow = round(fault.at * SECOND) <= self.now < round(fault.until * SECOND)
            if slow and fault.site == site.name:
                return round(fault.delay * SECOND)
        return 0

    def _appended(self, site: SiteNode, append: Append, life: int) -> None:
        if site.life != life or site.agent is None:
            return
        stream = site.disk.stream(append.stream)
        assert stream.end == append.position, (site.name, append.stream, stream.end, append.position)
        stream.append(append.record)
        if append.stream in self._clocked:
            self.kept.setdefault(append.stream[4:], []).append(append.record)
        kind, _, name = append.stream.partition("/")
        if kind == "out":
            for connection in site.connections.get(name, {}).values():
                self._push(site, connection)
        elif kind == "in":
            self._engines.wake(site)
        self.execute(site, site.agent.on_appended(site.local(self.now), append))

    def _do_trim(self, site: SiteNode, effect: Trim) -> None:
        self._on_disk(site, self._trim, effect)

    def _trim(self, site: SiteNode, effect: Trim, life: int) -> None:
        if site.life == life:
            site.disk.stream(effect.stream).trim(effect.keep)

    def _do_drop(self, site: SiteNode, effect: Drop) -> None:
        self._on_disk(site, self._drop, effect)

    def _drop(self, site: SiteNode, effect: Drop, life: int) -> None:
        if site.life != life:
            return
        site.disk.streams.pop(effect.stream, None)
        site.connections.pop(effect.stream.removeprefix("out/"), None)

    def _do_read(self, site: SiteNode, effect: ReadLog) -> None:
        self._on_disk(site, self._read, effect)

    def _read(self, site: SiteNode, effect: ReadLog, life: int) -> None:
        if site.life == life and site.agent is not None:
            log = site.disk.read(effect.stream)
            self.execute(site, site.agent.on_log(site.local(self.now), effect.stream, effect.tag, log))

    # --- branches

    def _do_open(self, node: Node, effect: OpenBranch) -> None:
        self._transmit(
            node,
            self.sites[effect.source],
            effect.stream,
            self._open,
            64,
            ("open", effect),
            node.name,
            effect,
        )

    def _do_close(self, node: Node, effect: CloseBranch) -> None:
        self._transmit(
            node,
            self.sites[effect.source],
            effect.stream,
            self._close,
            64,
            ("close", effect),
            node.name,
            effect,
        )

    def _open(self, site: SiteNode, consumer: str, branch: OpenBranch) -> None:
        if site.agent is None:
            return
        position, resumed = site.disk.stream(f"out/{branch.stream}").resume(branch)
        self._connections += 1
        connection = Connection(consumer, branch.stream, self._connections, position, position)
        site.connections.setdefault(branch.stream, {})[consumer] = connection
        node = self.nodes[consumer]
        self._transmit(
            site,
            node,
            branch.stream,
            self._opened,
            64,
            ("opened", position, resumed),
            site.name,
            branch.stream,
            position,
            resumed,
        )
        self._push(site, connection)

    def _close(self, site: SiteNode, consumer: str, branch: CloseBranch) -> None:
        site.connections.get(branch.stream, {}).pop(consumer, None)

    def _push(self, site: SiteNode, connection: Connection) -> None:
        """Sends what the consumer has not been sent, as far ahead of it as the window allows."""
        stream = site.disk.stream(f"out/{connection.stream}")
        connection.position = max(connection.position, stream.first)
        local = connection.consumer == site.name
        limit = stream.end if local else min(stream.end, connection.expected + self.settings.branch_window)
        while connection.position < limit:
            self._send_record(
                site, connection, connection.position, stream.records[connection.position - stream.first]
            )
            connection.position += 1

    def _send_record(self, site: SiteNode, connection: Connection, position: int, record: Record) -> None:
        node = self.nodes[connection.consumer]
        self._transmit(
            site,
            node,
            connection.stream,
            self._record,
            record.size,
            (position, record),
            site.name,
            connection.stream,
            position,
            record,
        )

    def _opened(self, node: Node, source: str, stream: str, position: int, resumed: bool) -> None:
        if isinstance(node, ApplicationNode):
            node.application.rejoin.opened(self.now, source, position, resumed)
        elif isinstance(node, SiteNode) and node.agent is not None:
            self.execute(node, node.agent.on_opened(node.local(self.now), stream, source, position, resumed))

    def _record(self, node: Node, source: str, stream: str, position: int, record: Record) -> None:
        if isinstance(node, ApplicationNode):
            self.execute(node, node.application.on_record(self.now, source, position, record))
            self._check_complete(node)
        elif isinstance(node, SiteNode) and node.agent is not None:
            self.execute(node, node.agent.on_branch(node.local(self.now), stream, source, position, record))

    def _reset(self, a: str, b: str) -> None:
        """Connections from ``a`` to ``b`` break; the consumers notice and open them again."""
        site = self.sites[a]
        for connection in site.all_connections:
            stream, node = connection.stream, self.nodes[connection.consumer]
            if node.place != b:
                continue
            del site.connections[stream][connection.consumer]
            if isinstance(node, ApplicationNode):
                self.execute(node, node.application.rejoin.reset(self.now, a))
            elif isinstance(node, SiteNode) and node.agent is not None:
                self.execute(node, node.agent.on_reset(node.local(self.now), stream, a))

    def _redeliver(self, fault: Redeliver) -> None:
        site = self.sites[fault.a]
        for connection in site.all_connections:
            if self.nodes[connection.consumer].place != fault.b:
                continue
            stream = site.disk.stream(f"out/{connection.stream}")
            for position in range(
                max(stream.first, connection.position - fault.records), min(connection.position, stream.end)
            ):
                self._send_record(site, connection, position, stream.records[position - stream.first])

    # --- messages

    def _do_send(self, node: Node, effect: Send) -> None:
        message = effect.message
        delay = 0
        if isinstance(node, ProducerNode):
            delay = next((end - self.now for begin, end in node.bursts if begin <= self.now < end), 0)
        if delay:
            self.at(self.now + delay, self._send, node, effect.to, message)
        else:
            self._send(node, effect.to, message)

    def _send(self, node: Node, to: str, message: Message) -> None:
        self._transmit(node, self.nodes[to], None, self._receive, size(message), message, node.name, message)

    def _transmit(
        self,
        sender: Node,
        to: Node,
        stream: str | None,
        action: Callable[..., None],
        bytes: int,
        content: Any,
        *arguments: Any,
    ) -> None:
        """``stream``: the connection it goes by; messages beside the branches share one a pair of nodes."""
        if self.fingerprint is not None:
            self.fingerprint.add(self.now, sender.name, to.name, stream, content)
        arrival = self.network.carry(self.now, sender.place, to.place, (sender.name, to.name, stream), bytes)
        if arrival is not None:
            self.at(arrival, action, to, *arguments)

    def _receive(self, node: Node, sender: str, message: Message) -> None:
        if isinstance(node, SiteNode):
            if node.agent is None:
                return
            if isinstance(message, Needed):
                self._credit(node, sender, message)
            self.execute(node, node.agent.on_message(node.local(self.now), sender, message))
        elif isinstance(node, ProducerNode):
            if isinstance(message, Accepted):
                node.producer.on_accepted(self.now, message)
            elif isinstance(message, Resend):
                self.execute(node, node.producer.on_resend(self.now, sender, message))
        elif isinstance(node, ApplicationNode) and isinstance(message, PlanOffer):
            self._connect(node, message.plan)

    def _credit(self, site: SiteNode, consumer: str, message: Needed) -> None:
        connection = site.connections.get(message.stream, {}).get(consumer)
        if connection is not None and message.position > connection.expected:
            connection.expected = message.position
            self._push(site, connection)

    # --- applications and producers

    def _connect(self, node: ApplicationNode, plan: Plan) -> None:
        self.execute(node, node.application.connect(self.now, plan))

    def _tick_application(self, node: ApplicationNode) -> None:
        self.execute(node, node.application.on_tick(self.now))
        self._check_complete(node)
        self.at(self.now + self.settings.tick, self._tick_application, node)

    def _check_complete(self, node: ApplicationNode) -> None:
        if node.complete_at is None and node.application.complete:
            node.complete_at = self.now
            self._unfinished -= 1

    def _do_deliver(self, node: ApplicationNode, effect: Deliver) -> None:
        node.delivered.append((self.now, effect.rows))

    def _do_report(self, node: Node, effect: Report) -> None:
        self.events.append((self.now, effect.event))

    def _offer(self, node: ProducerNode, rows: Batch | None) -> None:
        producer = node.producer
        self.execute(node, producer.close(self.now) if rows is None else producer.offer(self.now, rows))
