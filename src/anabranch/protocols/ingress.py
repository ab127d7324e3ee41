"""A stream as a site takes it in: branches rejoined, and what is new appended to the ingress log. The append
is the commit."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.protocols.effects import Effect, Report
from anabranch.protocols.events import Trimmed
from anabranch.protocols.records import Record, Writer
from anabranch.protocols.rejoin import Rejoin
from anabranch.protocols.settings import Settings
from anabranch.streams.batch import Batch, concat
from anabranch.streams.punctuation import BEGINNING, END

Arrival = tuple[str, int, Record]
"""The site it came from, its position there, and the record."""


class Ingress:
    """One stream at one site.

    Its log holds each tuple once, in order of first arrival, and with each record how far every branch had
    been read: after a crash, filter and positions are rebuilt from it, and nothing is asked for twice or
    skipped.
    """

    def __init__(self, stream: str, at: str, settings: Settings, generation: int, now: int) -> None:
        self.stream = stream
        self.rejoin = Rejoin(stream, at, settings, now)
        self.writer = Writer(f"in/{stream}", generation)
        self.floor = BEGINNING
        """What downstream can do with: complete from here is good enough to start."""
        self.durable = BEGINNING
        """The punctuation up to which the log is safe on disk."""

    def recover(self, now: int, first: int, records: tuple[Record, ...]) -> None:
        self.writer.recover(first, records)
        if records:
            self.rejoin.restore(now, records)
            self.durable = records[-1].punctuation

    def connect(self, now: int, sources: tuple[str, ...]) -> list[Effect]:
        return self.rejoin.keep_only(now, sources)

    def on_record(self, now: int, source: str, position: int, record: Record) -> list[Effect]:
        return self.on_records(now, [(source, position, record)])

    def on_records(self, now: int, arrivals: Sequence[Arrival]) -> list[Effect]:
        """What came while the last append was on its way goes in one: all that is new of it, with the
        punctuation behind."""
        effects: list[Effect] = []
        new: list[Batch] = []
        moved = False
        for source, position, record in arrivals:
            rows, advanced, more = self.rejoin.record(now, source, position, record)
            moved = moved or advanced
            effects += more
            if rows is not None:
                new.append(rows)
        moved = self.rejoin.settle(now, self.floor) or moved
        if new or moved:
            effects.append(self._append(concat(new) if new else None))
        return effects

    def on_durable(self, record: Record) -> None:
        self.durable = max(self.durable, record.punctuation)

    def on_tick(self, now: int) -> list[Effect]:
        effects = self.rejoin.sweep(now)
        gap = self.rejoin.skip_gap(now)
        if self.rejoin.settle(now, self.floor) or gap:
            effects.append(self._append(None))
        return [*effects, *gap]

    def trim(self, needed: int, retention: int, unread: int = END) -> list[Effect]:
        """Lets go of what no fragment here needs to rebuild or has yet to read, and of what is older than
        ``retention``."""
        return trim(self.writer, needed, retention, self.rejoin.at, self.stream, ("fragment",), unread)

    def _append(self, rows: Batch | None) -> Effect:
        frontier = self.rejoin.frontier
        self.writer.complete_from, self.writer.punctuation = frontier.complete_from, frontier.punctuation
        return self.writer.append(rows, cursors=self.rejoin.cursors)


def trim(
    writer: Writer,
    needed: int,
    retention: int,
    at: str,
    stream: str,
    consumers: tuple[str, ...],
    unread: int = END,
) -> list[Effect]:
    """Trims behind ``needed``, though not from position ``unread`` on; beyond ``retention`` also what is
    needed or unread, which is reported. A record without tuples is never too old."""
    index = writer.index
    bound = min(writer.punctuation, writer.high) - retention
    effects: list[Effect] = [*writer.trim(needed, unread)]
    if index.high(index.trim_before(bound)) > index.high(index.first):
        effects += writer.trim(bound)
    if effects and needed < bound and index.high(index.first) > needed:
        effects.append(Report(Trimmed(stream, at, index.high(index.first), consumers)))
    return effects
