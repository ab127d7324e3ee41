"""An engine that is a process of its own, simulated: micro-batches, a checkpoint that survives a crash,
results handed over batch by batch. What a Spark driver does, with the Arrow kernels inside.

As there, the range of a batch is fixed in the checkpoint before it is computed, and the batch is committed
once the agent has answered; a crash in between repeats it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from anabranch.engines.arrow import ArrowEngine
from anabranch.protocols.effects import EngineStart
from anabranch.protocols.events import Event
from anabranch.protocols.outside import Checkpoint, Computed, misfit
from anabranch.sim.disk import Disk, Stream
from anabranch.streams.batch import Batch, concat
from anabranch.streams.punctuation import BEGINNING, END

MOST = 8
"""Records of an input in one batch."""


class Kept(msgspec.Struct, frozen=True):
    """A checkpoint as it lies on the site's disk, with the state behind its last committed batch."""

    checkpoint: Checkpoint
    state: bytes
    promised: dict[str, int]


class SimulatedEngine:
    """One run. ``batch`` computes the next one, ``commit`` follows the agent's answer."""

    def __init__(
        self,
        start: EngineStart,
        disk: Disk,
        kept: dict[str, Kept],
        engine_of: Callable[[tuple[str, ...], tuple[str, ...]], ArrowEngine],
        run: str,
        random: Random,
    ) -> None:
        self.start = start
        self.random = random
        self._disk = disk
        self._kept = kept
        self._engine = engine_of(start.operators, start.exports)
        self._promised = dict.fromkeys(start.exports, BEGINNING)
        self.computed: Computed | None = None
        old = kept.get(start.fragment)
        self.resumed = old is not None and misfit(start, old.checkpoint, self._generation_before) is None
        if old is not None and self.resumed:
            self.checkpoint = old.checkpoint
            self._engine.start(self.checkpoint.complete_from)
            if old.state:
                self._engine.restore(old.state)
                self._engine.start(self.checkpoint.complete_from)
            self._promised |= old.promised
        else:
            begin = {
                stream: (at.position, self._generation_before(stream, at.position) or 0)
                for stream, at in start.inputs.items()
            }
            complete_from = {stream: at.complete_from for stream, at in start.inputs.items()}
            self.checkpoint = Checkpoint(run, start.operators, start.exports, complete_from, -1, begin)
            self._engine.start(complete_from)
            kept[start.fragment] = Kept(self.checkpoint, b"", {})

    def _log(self, stream: str) -> Stream:
        return self._disk.stream(f"in/{stream}")

    def _generation_before(self, stream: str, position: int) -> int | None:
        log = self._log(stream)
        if not log.first <= position <= log.end:
            return None
        if position > log.first:
            return log.records[position - 1 - log.first].generation
        return log.records[0].previous if log.records else 0

    def batch(self) -> Computed | None:
        """The next batch; None if nothing is new. Raises ``LookupError`` where the run cannot go on: records
        it has not read are gone, or its input has had a gap."""
        if self.computed is not None:
            return self.computed
        if self.checkpoint.planned is None:
            planned = {stream: self._end(stream) for stream in self.start.inputs}
            if planned == self.checkpoint.positions:
                return None
            self._keep(msgspec.structs.replace(self.checkpoint, planned=planned))
        assert self.checkpoint.planned is not None
        self.computed = self._compute(self.checkpoint.planned)
        return self.computed

    def _keep(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        kept = self._kept[self.start.fragment]
        self._kept[self.start.fragment] = msgspec.structs.replace(kept, checkpoint=checkpoint)

    def _end(self, stream: str) -> tuple[int, int]:
        """Up to where the next batch reads: never across a gap."""
        position, generation = self.checkpoint.positions[stream]
        log = self._log(stream)
        if position < log.first:
            raise LookupError(f"{stream}: records that were not read have been trimmed")
        end = position
        while end < min(log.end, position + 1 + self.random.randrange(MOST)):
            if self.checkpoint.complete_from[stream] < log.records[end - log.first].complete_from < END:
                if end == position:
                    raise LookupError(f"{stream}: a gap")
                break
            generation = log.records[end - log.first].generation
            end += 1
        return end, generation

    def _compute(self, ends: dict[str, tuple[int, int]]) -> Computed:
        rows: dict[str, list[Batch]] = {export: [] for export in self.start.exports}
        events: list[Event] = []
        for stream, (end, _) in ends.items():
            log, (position, _) = self._log(stream), self.checkpoint.positions[stream]
            if position < log.first or end > log.end:
                raise LookupError(f"{stream}: the log has changed")
            for at in range(position, end):
                record = log.records[at - log.first]
                told = record.complete_from != END
                for emission in self._engine.feed(stream, record.rows, record.punctuation if told else None):
                    if emission.rows is not None:
                        rows[emission.stream].append(emission.rows)
                    self._promised[emission.stream] = emission.punctuation
            events += self._engine.events()
        return Computed(
            self.start.fragment,
            self.checkpoint.run,
            self.checkpoint.batch + 1,
            {export: concat(batches) for export, batches in rows.items() if batches},
            dict(self._promised),
            {stream: end for stream, (end, _) in ends.items()},
            tuple(events),
        )

    def commit(self, run: str, batch: int) -> bool:
        """The agent holds this batch; whether that is news."""
        computed = self.computed
        if computed is None or (computed.run, computed.batch) != (run, batch):
            return False
        self.computed = None
        planned = self.checkpoint.planned
        assert planned is not None
        self.checkpoint = msgspec.structs.replace(
            self.checkpoint, batch=batch, positions=planned, planned=None
        )
        self._kept[self.start.fragment] = Kept(self.checkpoint, self._engine.snapshot(), dict(self._promised))
        return True
