"""A simulated site log: streams of records that survive a crash of the agent, and the connections it serves.

Like a real log it knows nothing of tuples: it stores, serves by position, and verifies by generation that a
reader who comes back left off in what is still there.
"""

from __future__ import annotations

import msgspec

from anabranch.protocols.effects import OpenBranch
from anabranch.protocols.records import Record
from anabranch.streams.batch import timestamps
from anabranch.streams.positions import PositionIndex
from anabranch.streams.punctuation import BEGINNING


class Stream:
    """Records from position ``first`` on."""

    def __init__(self) -> None:
        self.first = 0
        self.records: list[Record] = []
        self.bytes = 0

    @property
    def end(self) -> int:
        return self.first + len(self.records)

    def append(self, record: Record) -> None:
        self.records.append(record)
        self.bytes += record.size

    def trim(self, keep: int) -> None:
        gone = max(0, min(keep, self.end - 1) - self.first)
        self.bytes -= sum(record.size for record in self.records[:gone])
        del self.records[:gone]
        self.first += gone

    def lose_tail(self, count: int) -> None:
        kept = max(0, len(self.records) - count)
        self.bytes -= sum(record.size for record in self.records[kept:])
        del self.records[kept:]

    def resume(self, branch: OpenBranch) -> tuple[int, bool]:
        """Where a branch starts, and whether that is exactly where it left off."""
        position = branch.position
        if (
            position is not None
            and self.first <= position <= self.end
            and self._knows(position, branch.generation)
        ):
            return position, True
        return self._complete_from(branch.complete_from), False

    def _knows(self, position: int, generation: int) -> bool:
        if position > self.first:
            return self.records[position - 1 - self.first].generation == generation
        return position < self.end and self.records[0].previous == generation

    def _complete_from(self, timestamp: int) -> int:
        """The last position from which a branch is complete from ``timestamp``; the last record is always
        sent, for the punctuation it carries."""
        index = PositionIndex(self.first, self.records[0].high if self.records else BEGINNING)
        for position, record in enumerate(self.records, self.first):
            index.append(position, BEGINNING if record.rows is None else int(timestamps(record.rows).max()))
        return max(self.first, min(index.complete_from(timestamp), self.end - 1))


class Connection(msgspec.Struct):
    """A branch as the log serves it: the next position to send, and the next one the consumer has said it
    expects."""

    consumer: str
    stream: str
    number: int
    position: int
    expected: int


class Disk:
    """All streams of one site."""

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}

    def stream(self, name: str) -> Stream:
        found = self.streams.get(name)
        if found is None:
            found = self.streams[name] = Stream()
        return found

    def read(self, name: str) -> tuple[int, tuple[Record, ...]]:
        stream = self.stream(name)
        return stream.first, tuple(stream.records)

    @property
    def bytes(self) -> int:
        return sum(stream.bytes for stream in self.streams.values())
