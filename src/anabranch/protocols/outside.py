"""A fragment whose engine is a process of its own: it reads the ingress logs by itself, and hands over what
it computes, batch by batch.

The engine numbers its batches and remembers, in its checkpoint, which positions each of them covers. A *run*
is one unbroken sequence of batches. The rules that keep it exact:

- A batch is appended to the egress logs, with its run and number, before the engine may call it committed. So
  what a checkpoint calls committed is in the egress logs, or these have lost it, and then the run is over.
- Batches follow each other without a hole. A repeated one is answered again and appended nothing twice.
- Nothing is trimmed from an ingress log that the engine has not read.
- A run is complete from where its inputs were when it began. A gap in an input ends it: the next run
  begins with the log as it stands then.
- A run that cannot be resumed is replaced by a new one that reads the ingress logs from their first record,
  as every fragment does after a crash. What comes out a second time, the egress knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from anabranch.graph import Graph
from anabranch.protocols.effects import Answer, Effect, EngineInput, EngineStart, Report, StartEngine
from anabranch.protocols.egress import Egress
from anabranch.protocols.events import Event
from anabranch.protocols.messages import Snapshot
from anabranch.protocols.needs import Needs
from anabranch.protocols.records import Record, Sequence, Writer
from anabranch.protocols.roles import FragmentRole
from anabranch.protocols.settings import Settings
from anabranch.streams.batch import Batch, cut
from anabranch.streams.punctuation import BEGINNING, END, later


class Computed(msgspec.Struct, frozen=True):
    """Batch ``batch`` of ``run``: the rows of each export, what it promises behind them, and the position up
    to which each input has been read."""

    fragment: str
    run: str
    batch: int
    rows: dict[str, Batch]
    punctuation: dict[str, int]
    positions: dict[str, int]
    events: tuple[Event, ...] = ()


class Checkpoint(msgspec.Struct, frozen=True):
    """What an engine knows of a run of its own: the last batch that it calls committed, and for each input
    the position read up to with the generation of the record before it. ``planned``: the same at the end of
    the batch that is fixed but not committed. ``complete_from``: of each input, when the run began."""

    run: str
    operators: tuple[str, ...]
    exports: tuple[str, ...]
    complete_from: dict[str, int]
    batch: int
    positions: dict[str, tuple[int, int]]
    planned: dict[str, tuple[int, int]] | None = None


def misfit(
    start: EngineStart, checkpoint: Checkpoint, generation_before: Callable[[str, int], int | None]
) -> str | None:
    """Why the run of ``checkpoint`` cannot be resumed; None if it can. ``generation_before``: of the record
    before a position of an ingress log; None if the log does not reach there, or no longer."""
    if (checkpoint.operators, checkpoint.exports) != (start.operators, start.exports):
        return "it is of another fragment"
    for stream, begin in start.inputs.items():
        if begin.declared > checkpoint.complete_from[stream]:
            return f"there has been a gap in {stream} since"
        ends = [checkpoint.positions[stream]]
        if checkpoint.planned is not None:
            ends.append(checkpoint.planned[stream])
        for position, generation in ends:
            if position < begin.position or generation_before(stream, position) != generation:
                return f"the log of {stream} is not the one it was read from"
    for export in start.exports:
        run, batch = start.taken.get(export, ("", -1))
        if checkpoint.batch >= 0 and (run != checkpoint.run or batch < checkpoint.batch):
            return f"the log of {export} lacks some of what it had computed"
    return None


class OutsideFragment:
    """``log_of``: the writer of an ingress log of this site; None while that has not begun."""

    def __init__(
        self,
        graph: Graph,
        role: FragmentRole,
        spans: dict[tuple[str, str], int],
        egresses: dict[str, Egress],
        log_of: Callable[[str], Writer | None],
        settings: Settings,
    ) -> None:
        self.operators = role.operators
        self.name = role.operators[0]
        self.egresses = egresses
        self.started = False
        self._graph = graph
        self._role = role
        self._needs = Needs(egresses, spans)
        self._log_of = log_of
        self._settings = settings
        self._taken: dict[str, tuple[str, int]] = {}
        self._run: str | None = None
        self._batch = -1
        self._waiting: set[str] = set()
        """Exports for which the last batch is not durable yet."""
        self._positions: dict[str, int] = {}

    def recover(self, logs: Mapping[str, tuple[Record, ...]]) -> None:
        """The egress logs say which batches are safe."""
        for export, records in logs.items():
            for record in reversed(records):
                if record.sequence is not None:
                    self._taken[export] = (record.sequence.producer, record.sequence.first)
                    break

    def begin(self) -> list[Effect]:
        """Starts the engine once every input is known to be complete from somewhere. What nobody wants is not
        computed."""
        if self.started or not self.egresses:
            return []
        inputs: dict[str, EngineInput] = {}
        for stream in self._role.inputs:
            log = self._log_of(stream)
            if log is None or log.complete_from == END:
                return []
            first = log.index.first
            complete_from = max(log.index.high(first), log.complete_from)
            inputs[stream] = EngineInput(first, complete_from, log.complete_from)
            self._positions[stream] = first
        self.started = True
        known = {stream: begin.complete_from for stream, begin in inputs.items()}
        for name in self.operators:
            reached = max(known[stream] for stream in self._graph.node(name).inputs)
            known[name] = later(reached, self._graph.span(name))
        operators = {name: known[name] for name in self.operators}
        start = EngineStart(self.name, self.operators, self._role.exports, inputs, operators, self._taken)
        effects: list[Effect] = [
            egress.announce() for export, egress in self.egresses.items() if egress.begin(known[export])
        ]
        return [*effects, StartEngine(start)]

    # --- what the engine says

    def on_run(self, run: str) -> None:
        """The engine has begun, or resumed, this run."""
        self._run = run
        taken = [batch for of, batch in self._taken.values() if of == run]
        self._batch = min(taken) if len(taken) == len(self.egresses) else -1
        self._waiting.clear()

    def on_computed(self, computed: Computed) -> list[Effect]:
        if computed.run != self._run or computed.batch > self._batch + 1:
            return [Answer(self.name, computed.run, computed.batch, taken=False)]
        if computed.batch <= self._batch:
            if computed.batch == self._batch and self._waiting:
                return []
            return [Answer(self.name, computed.run, computed.batch, taken=True)]
        self._batch = computed.batch
        self._positions |= computed.positions
        self._waiting = set(self.egresses)
        effects: list[Effect] = [Report(event) for event in computed.events]
        for export, egress in self.egresses.items():
            promise = computed.punctuation[export]
            sequence = Sequence(computed.run, computed.batch, computed.batch + 1, promise, 0)
            rows = computed.rows.get(export)
            if rows is not None:
                # What the number stands in says that all before it is there.
                *before, rows = cut(rows, self._settings.message_bytes)
                for piece in before:
                    effects += egress.offer(piece, BEGINNING)
            effects += egress.offer(rows, promise, sequence)
        return effects

    def on_durable(self, export: str, record: Record) -> list[Effect]:
        """A record of an egress log is safe."""
        self.egresses[export].on_durable(record)
        sequence = record.sequence
        if sequence is None or (sequence.producer, sequence.first) != (self._run, self._batch):
            return []
        self._waiting.discard(export)
        return [] if self._waiting else [Answer(self.name, sequence.producer, self._batch, taken=True)]

    # --- as every fragment

    def on_record(self, stream: str, position: int, record: Record) -> list[Effect]:
        return self.begin()

    def on_tick(self, peers: tuple[str, ...]) -> list[Effect]:
        return self.begin()

    def on_snapshot(self, snapshot: Snapshot) -> list[Effect]:
        return []

    def offer_snapshot(self) -> Snapshot | None:
        return None

    def needed_of(self, stream: str, here: bool) -> int:
        return self._needs.of(stream, here)

    def least_of(self, stream: str, needed: Callable[[Egress], int]) -> int:
        return self._needs.least(stream, needed)

    def unread(self, stream: str) -> int:
        """The first position of an ingress log that the engine may not have read: it must stay."""
        reads = stream in self._role.inputs and self.egresses
        return self._positions.get(stream, 0) if reads else END
