"""A site's agent for one query: the protocols of the site, joined. Events in, effects out; no I/O.

Installing a plan means: for every role that is new, read what the log still holds of it, begin, and connect;
what the plan no longer gives this site stops, and its streams go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import msgspec

from anabranch.graph import Graph
from anabranch.plan import Plan
from anabranch.protocols import messages as m
from anabranch.protocols.effects import (
    Append,
    Drop,
    Effect,
    ReadLog,
    Report,
    Send,
    SetTimer,
    StopEngine,
)
from anabranch.protocols.egress import Egress
from anabranch.protocols.entry import PEER, EntryPoint
from anabranch.protocols.events import Rejected
from anabranch.protocols.fragment import EngineOf, Fragment
from anabranch.protocols.heartbeats import Heartbeats
from anabranch.protocols.identity import Identify
from anabranch.protocols.ingress import Arrival, Ingress
from anabranch.protocols.outside import Computed, OutsideFragment
from anabranch.protocols.records import Record, Writer
from anabranch.protocols.roles import FragmentRole, Roles, historic, roles, spans
from anabranch.protocols.settings import Settings
from anabranch.streams.punctuation import BEGINNING, END

Log = tuple[int, tuple[Record, ...]]
"""What is left of a stream of the site log: the first position, and the records from there."""


GENERATIONS = 24
"""Bits of a generation that number the writers of one life."""

AnyFragment = Fragment | OutsideFragment


class _Recovery:
    """Streams being read before a role begins."""

    def __init__(self, streams: list[str], begin: Callable[[int, dict[str, Log]], list[Effect]]) -> None:
        self.logs: dict[str, Log] = {}
        self.streams = streams
        self.begin = begin


class Agent:
    """``life`` numbers this life of the agent: it must differ from every earlier one. Writers take their
    generations from it, each its own: a stream that a plan takes away and a later one gives back is another
    log. ``outside``: engines are processes of their own, but for operators that depend on all of history."""

    def __init__(
        self,
        graph: Graph,
        site: str,
        sites: tuple[str, ...],
        retention: int,
        settings: Settings,
        engine_of: EngineOf,
        life: int,
        outside: bool = False,
    ) -> None:
        self.graph = graph
        self.site = site
        self.plan: Plan | None = None
        self.entries: dict[str, EntryPoint] = {}
        self.ingresses: dict[str, Ingress] = {}
        self.fragments: dict[FragmentRole, AnyFragment] = {}
        self.egresses: dict[str, Egress] = {}
        self._heartbeats = Heartbeats(tuple(s for s in sites if s != site), settings)
        self._retention = retention
        self._settings = settings
        self._engine_of = engine_of
        self._outside = outside
        self._generations = count(life << GENERATIONS)
        self._roles = Roles({}, {}, (), {})
        self._recoveries: dict[Any, _Recovery] = {}
        self._plans: Writer | None = None
        self._early: Plan | None = None
        """A plan that came before the log had told the last one."""

    # --- plans

    def start(self, now: int, plan: Plan) -> list[Effect]:
        """Begins a life: with the plan of the site's own log, if it is later than ``plan``."""
        self.plan = plan
        return [ReadLog("plan", ("plan",)), SetTimer("tick", self._settings.tick)]

    @property
    def version(self) -> m.Version:
        return (self.plan.epoch, self.plan.coordinator) if self.plan is not None else (0, "")

    def install(self, now: int, plan: Plan) -> list[Effect]:
        """Takes over a plan, unless the present one is as late. It is kept in the log, and spreads with the
        heartbeats."""
        if (plan.epoch, plan.coordinator) <= self.version:
            return []
        if self._plans is None:
            self._early = plan
            return []
        self.plan = plan
        return [self._plans.append(None, state=msgspec.json.encode(plan)), *self._apply(now)]

    def _apply(self, now: int) -> list[Effect]:
        assert self.plan is not None
        before, self._roles = self._roles, roles(self.graph, self.plan, self.site, self._outside)
        after = self._roles
        effects = self._stop(before, after)
        for source, peers in after.entries.items():
            entry = self.entries.get(source)
            if entry is None:
                effects += self._begin_entry(source)
            else:
                entry.set_peers(peers, self.plan.mirrors)
        for stream, sources in after.ingresses.items():
            ingress = self.ingresses.get(stream)
            if ingress is None:
                effects += self._begin_ingress(stream)
            else:
                effects += ingress.connect(now, sources)
        for role in after.fragments:
            if role not in before.fragments:
                effects += self._begin_fragment(role)
        for stream, egress in self.egresses.items():
            egress.serve(self._consumers(stream))
        return effects

    def _stop(self, before: Roles, after: Roles) -> list[Effect]:
        gone: list[str] = []
        effects: list[Effect] = []
        for role in before.fragments:
            if role not in after.fragments:
                effects += self._end_fragment(role)
        exports = {stream for role in after.fragments for stream in role.exports}
        for stream in [s for role in before.fragments for s in role.exports if s not in exports]:
            self.egresses.pop(stream, None)
            gone.append(f"out/{stream}")
        for stream in before.ingresses:
            if stream not in after.ingresses:
                ingress = self.ingresses.pop(stream, None)
                self._recoveries.pop(("in", stream), None)
                effects += [] if ingress is None else ingress.connect(0, ())
                gone.append(f"in/{stream}")
        for source in before.entries:
            if source not in after.entries:
                self.entries.pop(source, None)
                self.egresses.pop(source, None)
                self._recoveries.pop(("entry", source), None)
                gone += [f"out/{source}", f"held/{source}", f"late/{source}"]
        return [*effects, *(Drop(stream) for stream in gone)]

    # --- beginning a role: first what the log holds, then the rest

    def _recover(
        self, key: Any, streams: list[str], begin: Callable[[int, dict[str, Log]], list[Effect]]
    ) -> list[Effect]:
        self._recoveries[key] = _Recovery(streams, begin)
        return [ReadLog(stream, ("recover", key)) for stream in streams]

    def _begin_entry(self, name: str) -> list[Effect]:
        source = next(s for s in self.graph.sources if s.name == name)
        out, held, late = f"out/{name}", f"held/{name}", f"late/{name}"

        def begin(now: int, logs: dict[str, Log]) -> list[Effect]:
            assert self.plan is not None
            egress = self._egress(name)
            entry = EntryPoint(
                source,
                Identify(source),
                egress,
                self.graph.slides(name),
                self._settings,
                next(self._generations),
            )
            entry.set_peers(self._roles.entries[name], self.plan.mirrors)
            self.entries[name] = entry
            egress.serve(self._consumers(name))
            return entry.recover(now, logs[out], logs[held], logs[late])

        return self._recover(("entry", name), [out, held, late], begin)

    def _egress(self, stream: str) -> Egress:
        egress = Egress(stream, self.site, self._settings, next(self._generations))
        egress.serve(self._consumers(stream))
        self.egresses[stream] = egress
        return egress

    def _consumers(self, stream: str) -> tuple[str, ...]:
        """Who needs a stream of this site: all that consume it under the plan, from whatever site. The entry
        points of a source need each other's logs as well."""
        assert self.plan is not None
        consumers = tuple(dict.fromkeys(b.target for b in self.plan.branches if b.stream == stream))
        peers = self.entries[stream].peers if stream in self.entries else ()
        return (*consumers, *(PEER + peer for peer in peers))

    def _begin_ingress(self, stream: str) -> list[Effect]:
        def begin(now: int, logs: dict[str, Log]) -> list[Effect]:
            ingress = Ingress(stream, self.site, self._settings, next(self._generations), now)
            ingress.recover(now, *logs[f"in/{stream}"])
            self.ingresses[stream] = ingress
            return ingress.connect(now, self._roles.ingresses[stream])

        return self._recover(("in", stream), [f"in/{stream}"], begin)

    def _begin_fragment(self, role: FragmentRole) -> list[Effect]:
        snapshots = f"snapshot/{role.operators[0]}"

        def begin(now: int, logs: dict[str, Log]) -> list[Effect]:
            egresses = {stream: self._egress(stream) for stream in role.exports}
            for stream, egress in egresses.items():
                egress.recover(*logs[f"out/{stream}"])
            if self._is_outside(role):
                return self._begin_outside(role, egresses, logs)
            engine = self._engine_of(role.operators, role.exports)
            fragment = Fragment(
                role.operators,
                engine,
                spans(self.graph, role),
                egresses,
                self.site,
                self._settings,
                next(self._generations),
            )
            self.fragments[role] = fragment
            effects = fragment.recover_snapshots(*logs[snapshots])
            return [*effects, *(ReadLog(f"in/{stream}", ("replay", role)) for stream in role.inputs)]

        return self._recover(role, [snapshots, *(f"out/{stream}" for stream in role.exports)], begin)

    def _is_outside(self, role: FragmentRole) -> bool:
        return self._outside and not any(historic(self.graph.node(name)) for name in role.operators)

    def _begin_outside(
        self, role: FragmentRole, egresses: dict[str, Egress], logs: dict[str, Log]
    ) -> list[Effect]:
        def log_of(stream: str) -> Writer | None:
            ingress = self.ingresses.get(stream)
            return None if ingress is None else ingress.writer

        fragment = OutsideFragment(
            self.graph, role, spans(self.graph, role), egresses, log_of, self._settings
        )
        fragment.recover({stream: logs[f"out/{stream}"][1] for stream in role.exports})
        self.fragments[role] = fragment
        return fragment.begin()

    def _end_fragment(self, role: FragmentRole) -> list[Effect]:
        self._recoveries.pop(role, None)
        fragment = self.fragments.pop(role, None)
        started = isinstance(fragment, OutsideFragment) and fragment.started
        return [StopEngine(role.operators[0])] if started else []

    # --- engines that are processes of their own

    def _outside_fragment(self, name: str) -> OutsideFragment | None:
        for fragment in self.fragments.values():
            if isinstance(fragment, OutsideFragment) and fragment.name == name:
                return fragment
        return None

    def on_engine_started(self, now: int, name: str, run: str) -> list[Effect]:
        fragment = self._outside_fragment(name)
        if fragment is not None:
            fragment.on_run(run)
        return []

    def on_computed(self, now: int, computed: Computed) -> list[Effect]:
        fragment = self._outside_fragment(computed.fragment)
        return [] if fragment is None else fragment.on_computed(computed)

    def on_engine_failed(self, now: int, name: str) -> list[Effect]:
        """The engine of a fragment is gone: the fragment begins again with what the logs hold."""
        for role, fragment in list(self.fragments.items()):
            if isinstance(fragment, OutsideFragment) and fragment.name == name:
                del self.fragments[role]
                for stream in role.exports:
                    self.egresses.pop(stream, None)
                return self._begin_fragment(role)
        return []

    # --- what the log answers

    def on_log(self, now: int, stream: str, tag: Any, log: Log) -> list[Effect]:
        """The answer to a ``ReadLog``."""
        first, records = log
        match tag:
            case ("plan",):
                return self._on_plans(now, first, records)
            case ("recover", key):
                recovery = self._recoveries.get(key)
                if recovery is None:
                    return []
                recovery.logs[stream] = log
                if len(recovery.logs) < len(recovery.streams):
                    return []
                del self._recoveries[key]
                return recovery.begin(now, recovery.logs)
            case ("replay", role):
                fragment = self.fragments.get(role)
                if not isinstance(fragment, Fragment):
                    return []
                return fragment.on_log(stream.removeprefix("in/"), first, records)
            case ("catch up", source, peer, known, stock):
                entry = self.entries.get(source)
                return [] if entry is None else entry.answer_catch_up(peer, known, stock, records)
        raise AssertionError(f"no reader asked for {tag}")

    def _on_plans(self, now: int, first: int, records: tuple[Record, ...]) -> list[Effect]:
        self._plans = Writer("plan", next(self._generations))
        self._plans.recover(first, records)
        if records and records[-1].state is not None:
            stored = msgspec.json.decode(records[-1].state, type=Plan)
            if (stored.epoch, stored.coordinator) > self.version:
                self.plan = stored
        effects = self._apply(now)
        return effects if self._early is None else [*effects, *self.install(now, self._early)]

    # --- branches and the log

    def on_opened(self, now: int, stream: str, source: str, position: int, resumed: bool) -> list[Effect]:
        ingress = self.ingresses.get(stream)
        if ingress is not None:
            ingress.rejoin.opened(now, source, position, resumed)
        return []

    def on_reset(self, now: int, stream: str, source: str) -> list[Effect]:
        """The connection of a branch broke."""
        ingress = self.ingresses.get(stream)
        return [] if ingress is None else ingress.rejoin.reset(now, source)

    def on_branch(self, now: int, stream: str, source: str, position: int, record: Record) -> list[Effect]:
        return self.on_branches(now, stream, [(source, position, record)])

    def on_branches(self, now: int, stream: str, arrivals: Sequence[Arrival]) -> list[Effect]:
        """Records that the branches of a stream have brought, in the order in which they came."""
        ingress = self.ingresses.get(stream)
        return [] if ingress is None else ingress.on_records(now, arrivals)

    def on_appended(self, now: int, append: Append) -> list[Effect]:
        """A record is durable in this site's log."""
        kind, _, name = append.stream.partition("/")
        record = append.record
        if kind == "in":
            return self._on_ingress_durable(name, append.position, record)
        if kind == "out":
            if name in self.entries:
                return self.entries[name].on_durable(record)
            return self._on_egress_durable(name, record)
        if kind == "held" and name in self.entries:
            return self.entries[name].on_held(record)
        if kind == "snapshot":
            for role, fragment in self.fragments.items():
                if role.operators[0] == name and isinstance(fragment, Fragment):
                    return fragment.on_saved(append)
        elif kind == "plan":
            return [] if self._plans is None else list(self._plans.trim_before(append.position))
        return []

    def _on_egress_durable(self, stream: str, record: Record) -> list[Effect]:
        for role, fragment in self.fragments.items():
            if isinstance(fragment, OutsideFragment) and stream in role.exports:
                return fragment.on_durable(stream, record)
        if stream in self.egresses:
            self.egresses[stream].on_durable(record)
        return []

    def _on_ingress_durable(self, stream: str, position: int, record: Record) -> list[Effect]:
        if stream in self.ingresses:
            self.ingresses[stream].on_durable(record)
        effects: list[Effect] = []
        for role, fragment in self.fragments.items():
            if stream in role.inputs:
                effects += fragment.on_record(stream, position, record)
        return effects

    # --- messages

    def on_message(self, now: int, sender: str, message: m.Message) -> list[Effect]:
        match message:
            case m.Submit() | m.Ask() | m.Mirror() | m.Mirrored() | m.CatchUp() | m.CaughtUp():
                return self._on_entry_message(now, sender, message)
            case m.Needed():
                if message.stream in self.egresses:
                    consumer = PEER + sender if message.peer else sender
                    self.egresses[message.stream].on_needed(consumer, message.timestamp)
                return self._offer_plan(sender, message.version)
            case m.Heartbeat():
                self._heartbeats.on_heartbeat(now, sender)
                return self._offer_plan(sender, message.version)
            case m.PlanOffer():
                return self.install(now, message.plan)
            case m.SnapshotRequest():
                return self._offer_snapshot(sender, message.operator)
            case m.Snapshot():
                for role, fragment in self.fragments.items():
                    if role.operators[0] == message.operator:
                        return fragment.on_snapshot(message)
        return []

    def _on_entry_message(
        self,
        now: int,
        sender: str,
        message: m.Submit | m.Ask | m.Mirror | m.Mirrored | m.CatchUp | m.CaughtUp,
    ) -> list[Effect]:
        entry = self.entries.get(message.source)
        if entry is None:
            beginning = self._plans is None or ("entry", message.source) in self._recoveries
            reason = f"source {message.source!r} does not enter here under plan {self.version}"
            return [] if beginning else [Report(Rejected(sender, self.site, reason))]
        match message:
            case m.Submit():
                return entry.on_submit(now, sender, message)
            case m.Ask():
                return entry.on_ask(now, sender, message)
            case m.Mirror():
                return entry.on_mirror(now, sender, message)
            case m.Mirrored():
                return entry.on_mirrored(now, sender, message)
            case m.CatchUp():
                return entry.on_catch_up(sender, message)
            case m.CaughtUp():
                return entry.on_caught_up(now, sender, message)

    def _offer_plan(self, to: str, version: m.Version) -> list[Effect]:
        return [Send(to, m.PlanOffer(self.plan))] if self.plan is not None and self.version > version else []

    def _offer_snapshot(self, to: str, operator: str) -> list[Effect]:
        for role, fragment in self.fragments.items():
            if role.operators[0] == operator:
                snapshot = fragment.offer_snapshot()
                return [] if snapshot is None else [Send(to, snapshot)]
        return []

    # --- time

    def on_timer(self, now: int, key: str) -> list[Effect]:
        if key == "tick":
            return [*self._tick(now), SetTimer("tick", self._settings.tick)]
        kind, _, name = key.partition("/")
        return self.entries[name].on_timer(now) if kind == "entry" and name in self.entries else []

    def _tick(self, now: int) -> list[Effect]:
        effects: list[Effect] = []
        for entry in self.entries.values():
            effects += [*entry.on_tick(now), *entry.trim(self._retention)]
            needed = m.Needed(entry.source.name, entry.needed_from, 0, self.version, peer=True)
            effects += [Send(peer, needed) for peer in entry.peers]
        for role, fragment in self.fragments.items():
            effects += fragment.on_tick(self._peers(now, role))
        for stream, ingress in self.ingresses.items():
            effects += self._tend(now, stream, ingress)
        effects += self._tell_needs()
        for egress in self.egresses.values():
            effects += egress.trim(self._retention)
        return effects + self._heartbeats.on_tick(now, self.version)

    def _peers(self, now: int, role: FragmentRole) -> tuple[str, ...]:
        """The other sites that run the fragment's operator, as far as they seem alive."""
        assert self.plan is not None
        sites = self.plan.replicas.get(role.operators[0], ())
        return tuple(s for s in sites if s != self.site and not self._heartbeats.is_silent(now, s))

    def _tend(self, now: int, stream: str, ingress: Ingress) -> list[Effect]:
        """What an ingress stream needs now and then: branches kept open, its log trimmed."""
        effects: list[Effect] = []
        consuming = self._consuming(stream)
        if consuming is not None:
            here = min((f.needed_of(stream, here=True) for f in consuming), default=END)
            if not ingress.rejoin.frontier.settled:
                ingress.floor = max(ingress.floor, self._suffices(now, stream, consuming))
            unread = min((f.unread(stream) for f in consuming), default=END)
            effects += ingress.trim(min(here, ingress.durable), self._retention, unread)
        return effects + ingress.on_tick(now)

    def _suffices(self, now: int, stream: str, consuming: list[AnyFragment]) -> int:
        """Complete from here is good enough for ``stream`` to start: for every export behind its log, which
        holds all before, or from where its consumers need it."""
        needs = [
            f.least_of(stream, lambda egress: max(egress.durable, self._wanted(now, egress)))
            for f in consuming
        ]
        return min(needs, default=END)

    def _wanted(self, now: int, egress: Egress) -> int:
        """What is needed of an export. Results do not wait for consumers that are silent, have never told
        what they need, and have the stream from another site as well."""
        assert self.plan is not None
        branches = [b for b in self.plan.branches if b.stream == egress.stream and b.source != self.site]
        silent = {b.target for b in branches if self._heartbeats.is_silent(now, b.target)}
        return egress.needed_without(silent)

    def _consuming(self, stream: str) -> list[AnyFragment] | None:
        """The fragments that consume a stream; None while one of them has not begun."""
        if any(stream in role.consumed and role not in self.fragments for role in self._roles.fragments):
            return None
        return [fragment for role, fragment in self.fragments.items() if stream in role.consumed]

    def _tell_needs(self) -> list[Effect]:
        """Every site that yields a stream consumed here hears what of it is still needed, also one that has
        no branch to here now: a later plan may give it one."""
        assert self.plan is not None
        effects: list[Effect] = []
        for stream in dict.fromkeys(s for role in self._roles.fragments for s in role.consumed):
            consuming = self._consuming(stream)
            if consuming is None:
                continue
            ingress = self.ingresses.get(stream)
            needed = min(f.needed_of(stream, here=False) for f in consuming)
            if stream in self._roles.ingresses:
                needed = BEGINNING if ingress is None else min(needed, ingress.durable)
            for site in self.plan.carriers(stream):
                if site != self.site:
                    position = 0 if ingress is None else ingress.rejoin.position_at(site)
                    effects.append(Send(site, m.Needed(stream, needed, position, self.version)))
                elif stream in self.egresses:
                    self.egresses[stream].on_needed(site, needed)
        return effects
