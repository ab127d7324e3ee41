"""What a site log holds, and the one writer of each of its streams."""

from __future__ import annotations

import msgspec

from anabranch.protocols.effects import Append, Trim
from anabranch.streams.batch import Batch, timestamps
from anabranch.streams.positions import PositionIndex
from anabranch.streams.punctuation import BEGINNING, END

HEADER = 64
"""Bytes that a record or a message takes beside its tuples, about."""


class Cursor(msgspec.Struct, frozen=True):
    """How far a branch has been read: the next position, the generation of the record before it, and what it
    is complete from."""

    source: str
    position: int
    generation: int
    complete_from: int


class Sequence(msgspec.Struct, frozen=True):
    """How far an entry point's log holds a producer's tuples: all sequences below ``until``, the first of
    this record's being ``first``; no later one has a timestamp <= ``promise``."""

    producer: str
    first: int
    until: int
    promise: int
    attempt: int


class Record(msgspec.Struct, frozen=True):
    """One append. Everything a reader must know of its log stands in the record itself, so that a log need
    only store and serve.

    ``generation`` changes whenever the writer restarts: a log that lost its tail goes on at positions its
    readers have seen with other contents, and ``generation`` with ``previous`` (of the record before) gives
    it away. ``high`` is the largest timestamp before this record: a branch opened here is complete from it.
    """

    rows: Batch | None
    punctuation: int
    complete_from: int
    generation: int
    previous: int
    high: int
    cursors: tuple[Cursor, ...] = ()
    sequence: Sequence | None = None
    state: bytes | None = None
    size: int = 0
    """Bytes on a link or a disk: the columns, and a header of some 64 bytes."""


class Writer:
    """The only writer of one stream of a site log: it numbers the records and knows which may go."""

    def __init__(self, stream: str, generation: int) -> None:
        self.stream = stream
        self.generation = generation
        self.position = 0
        self.index = PositionIndex()
        self.complete_from = END
        self.punctuation = BEGINNING
        self._previous = 0
        self.high = BEGINNING
        """The largest timestamp appended so far."""

    def recover(self, first: int, records: tuple[Record, ...]) -> None:
        """Continues a log that exists: ``records`` from position ``first`` to its end."""
        self.position = first
        # A log that has lost all it held goes on where it was, with nothing before.
        self.index = PositionIndex(first)
        for record in records:
            if record is records[0]:
                self.index = PositionIndex(first, record.high)
                self.high = record.high
            self._note(record.rows)
            self._previous = record.generation
        if records:
            self.complete_from, self.punctuation = records[-1].complete_from, records[-1].punctuation

    def append(
        self,
        rows: Batch | None,
        cursors: tuple[Cursor, ...] = (),
        sequence: Sequence | None = None,
        state: bytes | None = None,
    ) -> Append:
        record = Record(
            rows,
            self.punctuation,
            self.complete_from,
            self.generation,
            self._previous,
            self.high,
            cursors,
            sequence,
            state,
            _size(rows, cursors, state),
        )
        position = self.position
        self._note(rows)
        self._previous = self.generation
        return Append(self.stream, position, record)

    def trim(self, behind: int, unread: int = END) -> list[Trim]:
        """Lets go of the records before position ``unread`` whose tuples all have timestamps <= ``behind``;
        the last record always stays."""
        return self.trim_before(min(self.index.trim_before(behind), unread))

    def trim_before(self, keep: int) -> list[Trim]:
        """Lets go of the records before position ``keep``."""
        if keep <= self.index.first:
            return []
        self.index.trimmed(keep)
        return [Trim(self.stream, keep)]

    def _note(self, rows: Batch | None) -> None:
        top = BEGINNING if rows is None else int(timestamps(rows).max())
        self.index.append(self.position, top)
        self.high = max(self.high, top)
        self.position += 1


def _size(rows: Batch | None, cursors: tuple[Cursor, ...], state: bytes | None) -> int:
    return (
        HEADER
        + 32 * len(cursors)
        + (0 if rows is None else int(rows.nbytes))
        + (0 if state is None else len(state))
    )
