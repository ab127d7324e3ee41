"""A stream as a site serves it: what a replica computed, appended once, kept until nobody needs it."""

from __future__ import annotations

from collections.abc import Set

from anabranch.protocols.effects import Effect
from anabranch.protocols.ingress import trim
from anabranch.protocols.records import Record, Sequence, Writer
from anabranch.protocols.rejoin import pass_new, remember
from anabranch.protocols.settings import Settings
from anabranch.streams.batch import Batch, cut, timestamps
from anabranch.streams.duplicates import DuplicateFilter
from anabranch.streams.punctuation import BEGINNING, END


class Egress:
    """One stream that a replica (or an entry point) on this site yields.

    A restarted fragment computes again what the log already holds. Rows at or behind the log's punctuation
    are there by the law; for those beyond it, a duplicate filter over the log's tail tells.
    """

    def __init__(self, stream: str, at: str, settings: Settings, generation: int) -> None:
        self.stream = stream
        self.at = at
        self.writer = Writer(f"out/{stream}", generation)
        self.durable = BEGINNING
        self.needed: dict[str, int] = {}
        self._settings = settings
        self._tail: DuplicateFilter | None = None
        self._tail_end = BEGINNING

    def recover(self, first: int, records: tuple[Record, ...]) -> None:
        self.writer.recover(first, records)
        if not records:
            return
        self.durable = self.writer.punctuation
        beyond = (int(timestamps(r.rows).max()) for r in records if r.rows is not None)
        self._tail_end = max(self.writer.punctuation, *beyond, BEGINNING)
        self._tail = DuplicateFilter(1)
        remember(self._tail, self.writer.punctuation, records)

    @property
    def complete_from(self) -> int:
        return self.writer.complete_from

    def begin(self, complete_from: int) -> bool:
        """The replica is complete from here on. What the log holds already may make good for what the replica
        lacks; if not, the log has a hole, and is complete only from behind it. True if that is news for
        consumers."""
        if complete_from == END or complete_from == self.writer.complete_from:
            return False
        if self.writer.complete_from != END and complete_from <= self.writer.punctuation:
            return False
        self.writer.complete_from = complete_from
        self.writer.punctuation = max(self.writer.punctuation, complete_from)
        return True

    def offer(self, rows: Batch | None, punctuation: int, sequence: Sequence | None = None) -> list[Effect]:
        """What the replica yields next: appended, unless the log has it."""
        if rows is not None and self._tail is not None:
            rows = pass_new(self._tail, 0, rows)
        effects: list[Effect] = []
        if rows is not None and sequence is None:
            *before, rows = cut(rows, self._settings.message_bytes)
            effects += [self.writer.append(piece) for piece in before]
        moved = self.writer.complete_from != END and punctuation > self.writer.punctuation
        if moved:
            self.writer.punctuation = punctuation
            if self._tail is not None and punctuation >= self._tail_end:
                self._tail = None
        if rows is None and not moved and sequence is None:
            return []
        return [*effects, self.writer.append(rows, sequence=sequence)]

    def announce(self) -> Effect:
        """A record without rows: it tells consumers where the log is complete from now."""
        return self.writer.append(None)

    def on_durable(self, record: Record) -> None:
        self.durable = max(self.durable, record.punctuation)

    def serve(self, consumers: tuple[str, ...]) -> None:
        """The consumers of the plan: nothing is trimmed before each has told what it needs."""
        self.needed = {c: self.needed.get(c, BEGINNING) for c in consumers}

    def on_needed(self, consumer: str, timestamp: int) -> None:
        if consumer in self.needed:
            self.needed[consumer] = max(self.needed[consumer], timestamp)

    @property
    def needed_from(self) -> int:
        """Only later timestamps are still needed by some consumer."""
        return self.needed_without(frozenset())

    def needed_without(self, absent: Set[str]) -> int:
        """The same, where it is not waited for ``absent`` consumers to tell for the first time."""
        told = [t for consumer, t in self.needed.items() if t > BEGINNING or consumer not in absent]
        return min(told, default=self.durable)

    def trim(self, retention: int) -> list[Effect]:
        needed = self.needed_from
        behind = tuple(c for c, t in self.needed.items() if t == needed)
        return trim(
            self.writer, needed - self._settings.rebuild_slack, retention, self.at, self.stream, behind
        )
