"""Where the branches of one stream rejoin: the consumer's side, shared by a site's ingress and by
applications.

Each branch is read from its own log by position, as fast as it comes. What is new passes at once; the rest is
counted and dropped. A branch that falls silent is opened again where it stood.

The rules that keep the guarantees:

- Only the record at the expected position counts. An earlier one was sent twice; a later one means that
  something between was lost, and the branch is opened again.
- A branch that could not resume where it stood starts over as a new branch: what it promised before is void,
  and it is complete only from the largest timestamp before its first record.
- A stream without history is complete from the smallest complete_from of its branches. It settles once one of
  them suffices for what downstream still needs, or all have told theirs.
- Branches that disagree about what each of them claims to have brought in full are reported, and rejoined all
  the same.
- When all branches are open and each is complete only from beyond the stream's punctuation, nobody has what
  lies between: a gap. It is reported, and the stream goes on behind it.
"""

from __future__ import annotations

import pyarrow as pa

from anabranch.protocols.effects import CloseBranch, Effect, OpenBranch, Report
from anabranch.protocols.events import Disagreement, Gap
from anabranch.protocols.records import Cursor, Record
from anabranch.protocols.settings import Settings
from anabranch.streams.agreement import Agreement, Rows
from anabranch.streams.batch import Batch, ids, timestamps
from anabranch.streams.duplicates import DuplicateFilter
from anabranch.streams.punctuation import BEGINNING, END, Frontier


class Reader:
    """One branch as its consumer knows it."""

    __slots__ = (
        "asked",
        "complete_from",
        "generation",
        "heard",
        "index",
        "opened_from",
        "opening",
        "position",
        "promise",
        "wait",
    )

    def __init__(self, index: int, now: int, wait: int) -> None:
        self.index = index
        self.position: int | None = None
        self.generation = 0
        self.opened_from = END
        self.complete_from = END
        self.promise = BEGINNING
        self.asked = False
        self.opening = False
        self.heard = now
        self.wait = wait


class Rejoin:
    """The branches of ``stream`` at ``at`` (a site or an application), their duplicate filter and their
    frontier."""

    def __init__(self, stream: str, at: str, settings: Settings, now: int) -> None:
        self.stream = stream
        self.at = at
        self.filter = DuplicateFilter(0)
        self.frontier = Frontier()
        self.agreement = Agreement()
        self.readers: dict[str, Reader] = {}
        self.names: list[str] = []
        self.received: list[int] = []
        """Of each branch there has ever been, by the filter's number: its name, and how many tuples it
        delivered."""
        self._settings = settings
        self._since = now
        self._moved = now

    def restore(self, now: int, records: tuple[Record, ...]) -> None:
        """Rebuilds filter, frontier and positions from this stream's own log: the append was the commit."""
        last = records[-1]
        self.frontier.restore(last.complete_from, last.punctuation)
        for cursor in last.cursors:
            reader = self._reader(now, cursor.source)
            if cursor.complete_from != END:
                reader.position, reader.generation = cursor.position, cursor.generation
                reader.opened_from = cursor.complete_from
        remember(self.filter, self.frontier.punctuation, records)

    def keep_only(self, now: int, sources: tuple[str, ...]) -> list[Effect]:
        """Opens the branches that are new in a plan, closes those that left it."""
        effects: list[Effect] = []
        for source in self.names:
            if source not in sources and source in self.readers:
                del self.readers[source]
                self.frontier.forget(source)
                self.agreement.start_over(source)
                effects.append(CloseBranch(self.stream, source))
        for source in sources:
            reader = self.readers.get(source)
            if reader is None or not reader.asked:
                effects.append(self._open(now, self._reader(now, source), source))
        return effects

    def _reader(self, now: int, source: str) -> Reader:
        reader = self.readers.get(source)
        if reader is None:
            if source not in self.names:
                self.names.append(source)
                self.received.append(0)
                self.filter.add_branch()
            reader = Reader(self.names.index(source), now, self._settings.branch_timeout)
            self.readers[source] = reader
            self.frontier.hear(source, END, BEGINNING)
        return reader

    def _open(self, now: int, reader: Reader, source: str) -> OpenBranch:
        reader.heard, reader.opening, reader.asked = now, True, True
        return OpenBranch(self.stream, source, reader.position, reader.generation, self.frontier.punctuation)

    def opened(self, now: int, source: str, position: int, resumed: bool) -> None:
        """The branch will carry records from ``position`` on; ``resumed``: exactly where it was expected to
        go on."""
        reader = self.readers.get(source)
        if reader is None or (resumed and position != reader.position):
            # The answer to an earlier life's request.
            return
        reader.heard, reader.opening = now, False
        if not resumed:
            reader.opened_from = reader.complete_from = END
            reader.promise = BEGINNING
            reader.generation = 0
            self.frontier.hear(source, END, BEGINNING)
            self.agreement.start_over(source)
        reader.position = position

    def record(
        self, now: int, source: str, position: int, record: Record
    ) -> tuple[Batch | None, bool, list[Effect]]:
        """A record that ``source`` sent: its new rows, whether the punctuation moved, what to do besides."""
        reader = self.readers.get(source)
        if reader is None or reader.position is None or position < reader.position:
            return None, False, []
        if position > reader.position or (reader.generation != record.previous and reader.generation != 0):
            # A reopening on its way will mend it: the pause grows, so that a stalled link is not flooded.
            if reader.opening and now - reader.heard < reader.wait:
                return None, False, []
            return None, False, [self._open(now, reader, source)]
        reader.heard, reader.opening, reader.wait = now, False, self._settings.branch_timeout
        reader.position, reader.generation = position + 1, record.generation
        if reader.opened_from == END:
            reader.opened_from = record.high
        reader.complete_from = max(reader.opened_from, record.complete_from)
        reader.promise = max(reader.promise, record.punctuation)
        rows = record.rows
        columns = None if rows is None else (timestamps(rows), *ids(rows))
        effects = self._compare(source, record, columns, reader.promise)
        if rows is not None and columns is not None:
            self.received[reader.index] += rows.num_rows
            rows = _passed(self.filter, reader.index, rows, columns)
        moved = self.frontier.hear(source, reader.complete_from, reader.promise)
        if moved:
            self._punctuate(now)
        return rows, moved, effects

    def _compare(self, source: str, record: Record, rows: Rows | None, promise: int) -> list[Effect]:
        if len(self.readers) < 2:
            # What is not read of a branch here breaks it off.
            self.agreement.clear()
            return []
        if record.generation != record.previous:
            # A new life of its writer may bring again what the log, trimmed, no longer held.
            self.agreement.start_over(source)
        dissents = self.agreement.record(source, record.high, record.complete_from, rows, promise)
        return [Report(Disagreement(self.stream, self.at, *dissent)) for dissent in dissents]

    def settle(self, now: int, floor: int) -> bool:
        """Decides where a stream without history is complete from; ``floor``: what downstream can do with.
        True once decided."""
        if self.frontier.settled or not self.readers:
            return False
        least = self.frontier.least_known()
        if least == END:
            return False
        patient = now - self._since < self._settings.gap_patience
        if least > floor and patient and self.frontier.first_complete(list(self.readers)) is None:
            return False
        self.frontier.settle(least)
        self._punctuate(now)
        return True

    def reset(self, now: int, source: str) -> list[Effect]:
        """The connection broke: the branch is opened again where it stood."""
        reader = self.readers.get(source)
        return [] if reader is None else [self._open(now, reader, source)]

    def sweep(self, now: int) -> list[Effect]:
        """Opens silent branches again."""
        effects: list[Effect] = []
        if self.frontier.punctuation == END:
            return effects
        for source, reader in self.readers.items():
            # A clock that was set back must not make a silence out of the future.
            reader.heard = min(reader.heard, now)
            if now - reader.heard >= reader.wait:
                reader.wait = min(2 * reader.wait, self._settings.branch_timeout_most)
                effects.append(self._open(now, reader, source))
        return effects

    def skip_gap(self, now: int) -> list[Effect]:
        """Goes on behind a gap that no branch can fill; empty if there is none, or if one may still be
        filled.

        Nobody can fill it when every branch is complete only from beyond the punctuation. A branch that could
        but stays away is waited for, ``gap_patience`` long.
        """
        if not self.frontier.settled:
            return []
        beyond = self.frontier.least_waiting()
        if beyond == END:
            return []
        certain = self.frontier.first_complete(list(self.readers))
        hopeless = certain is not None and certain > self.frontier.punctuation
        if not hopeless and now - self._moved < self._settings.gap_patience:
            return []
        gap = Gap(self.stream, self.at, self.frontier.punctuation, beyond)
        self.frontier.settle(beyond)
        self._punctuate(now)
        return [Report(gap)]

    def _punctuate(self, now: int) -> None:
        self._moved = now
        self.filter.punctuate(self.frontier.punctuation)

    def position_at(self, source: str) -> int:
        """The next position expected of a branch; 0 if there is none."""
        reader = self.readers.get(source)
        return 0 if reader is None else reader.position or 0

    @property
    def cursors(self) -> tuple[Cursor, ...]:
        return tuple(
            Cursor(source, reader.position or 0, reader.generation, reader.complete_from)
            for source, reader in self.readers.items()
        )


def pass_new(filter: DuplicateFilter, branch: int, rows: Batch) -> Batch | None:
    """The rows that arrive for the first time on any branch; None if there are none."""
    return _passed(filter, branch, rows, (timestamps(rows), *ids(rows)))


def _passed(filter: DuplicateFilter, branch: int, rows: Batch, columns: Rows) -> Batch | None:
    new = filter.accept(branch, *columns)
    if new == 0:
        return None
    return rows if new == rows.num_rows else rows.filter(pa.array(filter.fresh))


def remember(filter: DuplicateFilter, punctuation: int, records: tuple[Record, ...]) -> None:
    """Rebuilds a filter from the log of what it has passed."""
    filter.punctuate(punctuation)
    for record in records:
        if record.rows is not None:
            filter.restore(punctuation, timestamps(record.rows), *ids(record.rows))
