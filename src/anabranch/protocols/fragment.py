"""A fragment: connected operator replicas of one query on one site, run by one engine between ingress and
egress logs.

The engine's memory is lost in a crash. A fragment begins by reading its ingress logs again from their first
retained record: that is far enough back, because nothing is trimmed that some egress still needs
(:meth:`Fragment.needed_of`). What comes out a second time, the egress knows.

An operator that depends on all of history cannot be rebuilt from a trimmed log. It is a fragment of its own,
and starts from a snapshot taken at a punctuation: its own, from this site's log, or a peer's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from anabranch.protocols.effects import Append, Effect, Report, Send
from anabranch.protocols.egress import Egress
from anabranch.protocols.events import Event, Oversized, Waiting
from anabranch.protocols.messages import Snapshot, SnapshotRequest
from anabranch.protocols.needs import Needs
from anabranch.protocols.records import Record, Writer
from anabranch.protocols.settings import Settings
from anabranch.streams.batch import Batch
from anabranch.streams.punctuation import BEGINNING, END


class Emission(Protocol):
    """Rows of an exported stream, and the punctuation that follows them."""

    @property
    def stream(self) -> str: ...
    @property
    def rows(self) -> Batch | None: ...
    @property
    def punctuation(self) -> int: ...


class Engine(Protocol):
    """What computes a fragment. Pure: it blocks on nothing and remembers nothing beyond its snapshot."""

    inputs: tuple[str, ...]
    exports: tuple[str, ...]
    historic: bool

    def start(self, complete_from: dict[str, int]) -> dict[str, int]:
        """Where each input is complete from; returns it for each export. Called again when one has moved."""
        ...

    def feed(self, stream: str, rows: Batch | None, punctuation: int | None) -> Sequence[Emission]: ...
    def snapshot(self) -> bytes: ...
    def restore(self, snapshot: bytes) -> None: ...
    def events(self) -> Sequence[Event]: ...


EngineOf = Callable[[tuple[str, ...], tuple[str, ...]], Engine]
"""From a fragment's operators and the streams it exports."""


class Fragment:
    """One fragment at work. ``spans``: for each (input, export), the longest sum of windows on a way between
    them."""

    def __init__(
        self,
        operators: tuple[str, ...],
        engine: Engine,
        spans: dict[tuple[str, str], int],
        egresses: dict[str, Egress],
        at: str,
        settings: Settings,
        generation: int,
    ) -> None:
        self.operators = operators
        self.engine = engine
        self.egresses = egresses
        self.missing = set(engine.inputs)
        """Inputs whose log has not been read back yet."""
        self.at = at
        self._needs = Needs(egresses, spans)
        self._settings = settings
        self._complete_from = dict.fromkeys(engine.inputs, END)
        self._origin = dict.fromkeys(engine.inputs, BEGINNING)
        self._next = dict.fromkeys(engine.inputs, 0)
        self._fed = dict.fromkeys(engine.inputs, BEGINNING)
        self._snapshots = Writer(f"snapshot/{operators[0]}", generation) if engine.historic else None
        self._saved = BEGINNING
        self._saved_durable = BEGINNING
        self._latest: Snapshot | None = None
        self._restored = not engine.historic
        self._reported = False

    def on_log(self, stream: str, first: int, records: tuple[Record, ...]) -> list[Effect]:
        """An ingress log as it stands: the fragment catches up with it."""
        self.missing.discard(stream)
        self._next[stream] = first
        if records:
            self._origin[stream] = records[0].high
        effects: list[Effect] = []
        for position, record in enumerate(records, first):
            effects += self.on_record(stream, position, record)
        return effects

    def on_record(self, stream: str, position: int, record: Record) -> list[Effect]:
        """A record that is safe in an ingress log."""
        if stream in self.missing or position < self._next[stream]:
            return []
        self._next[stream] = position + 1
        effects: list[Effect] = []
        complete_from = max(self._origin[stream], record.complete_from)
        if complete_from != self._complete_from[stream]:
            self._complete_from[stream] = complete_from
            self._restored = not self.engine.historic
            effects += self._start()
        told = complete_from != END
        self._fed[stream] = record.punctuation if told else BEGINNING
        effects += self._emit(self.engine.feed(stream, record.rows, record.punctuation if told else None))
        if self._snapshots is not None:
            effects += self._save()
        return effects

    def _start(self) -> list[Effect]:
        return [
            self.egresses[stream].announce()
            for stream, complete_from in self.engine.start(self._complete_from).items()
            if self.egresses[stream].begin(complete_from)
        ]

    def _emit(self, emissions: Sequence[Emission]) -> list[Effect]:
        effects: list[Effect] = []
        for emission in emissions:
            effects += self.egresses[emission.stream].offer(emission.rows, emission.punctuation)
        effects += [Report(event) for event in self.engine.events()]
        return effects

    # --- snapshots of operators that depend on all of history

    @property
    def waiting(self) -> bool:
        """Whether it needs a snapshot to begin: its input is no longer there from the beginning."""
        since = next(iter(self._complete_from.values()))
        return not self._restored and BEGINNING < since < END

    def recover_snapshots(self, first: int, records: tuple[Record, ...]) -> list[Effect]:
        if self._snapshots is None:
            return []
        self._snapshots.recover(first, records)
        if not records or records[-1].state is None:
            return []
        self._saved = self._saved_durable = records[-1].punctuation
        self._latest = Snapshot(self.operators[0], records[-1].punctuation, records[-1].state)
        return self.on_snapshot(self._latest)

    def on_snapshot(self, snapshot: Snapshot) -> list[Effect]:
        """A peer's state, or this site's own of before the crash: usable if the input is complete from it."""
        if self._latest is None or snapshot.punctuation > self._latest.punctuation:
            self._latest = snapshot
        return self._use_snapshot()

    def _use_snapshot(self) -> list[Effect]:
        snapshot, stream = self._latest, self.engine.inputs[0]
        if not self.waiting or snapshot is None or snapshot.punctuation < self._complete_from[stream]:
            return []
        self.engine.restore(snapshot.state)
        self._restored = True
        effects = self._start()
        return effects + self._emit(self.engine.feed(stream, None, self._fed[stream]))

    def on_tick(self, peers: tuple[str, ...]) -> list[Effect]:
        if not self.waiting:
            return []
        effects = self._use_snapshot()
        if not self.waiting:
            return effects
        operator = self.operators[0]
        effects += [Send(peer, SnapshotRequest(operator)) for peer in peers]
        if not self._reported:
            self._reported = True
            effects.append(Report(Waiting(operator, self.at, next(iter(self._complete_from.values())))))
        return effects

    def offer_snapshot(self) -> Snapshot | None:
        """The state as of the latest punctuation, for a peer."""
        fed = self._fed[self.engine.inputs[0]]
        if self._snapshots is None or self.waiting or fed == BEGINNING:
            return None
        state = self.engine.snapshot()
        return Snapshot(self.operators[0], fed, state) if len(state) <= self._settings.message_bytes else None

    def _save(self) -> list[Effect]:
        assert self._snapshots is not None
        effects = self._use_snapshot()
        fed = self._fed[self.engine.inputs[0]]
        if self.waiting or fed < self._saved + self._settings.snapshot_interval or fed == BEGINNING:
            return effects
        self._saved = fed
        state = self.engine.snapshot()
        if len(state) > self._settings.message_bytes:
            return [*effects, Report(Oversized(self.operators[0], self.at, len(state)))]
        self._snapshots.punctuation = fed
        return [*effects, self._snapshots.append(None, state=state)]

    def on_saved(self, append: Append) -> list[Effect]:
        """A snapshot is durable: earlier ones may go."""
        assert self._snapshots is not None
        self._saved_durable = append.record.punctuation
        return list(self._snapshots.trim_before(append.position))

    # --- what may be trimmed

    def needed_of(self, stream: str, here: bool) -> int:
        return self._with_snapshots(self._needs.of(stream, here))

    def least_of(self, stream: str, needed: Callable[[Egress], int]) -> int:
        return self._with_snapshots(self._needs.least(stream, needed))

    def _with_snapshots(self, needed: int) -> int:
        return min(needed, self._saved_durable) if self.engine.historic else needed

    def unread(self, stream: str) -> int:
        """It keeps up with its ingress logs: nothing has to stay for it but what it would be rebuilt from."""
        return END
