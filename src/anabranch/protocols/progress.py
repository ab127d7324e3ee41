"""What an entry point knows of one producer: how far its tuples are here, and which wait to be shown."""

from __future__ import annotations

from collections import deque

from anabranch.protocols.records import Record, Sequence
from anabranch.streams.batch import Batch, timestamps
from anabranch.streams.punctuation import BEGINNING

Reached = tuple[int, int]
"""How far a producer's stream has come: all sequences below the first, and the promise that goes with it."""


class Chunk:
    """Consecutive tuples of a producer that are taken and not yet shown. ``own``: this is their origin.
    ``shown``: it has no tuples, but stands for those before it, which are shown already, not confirmed."""

    __slots__ = ("durable", "held_at", "holders", "own", "rows", "sent", "sequence", "shown", "since")

    def __init__(
        self, rows: Batch | None, sequence: Sequence, own: bool, now: int, shown: bool = False
    ) -> None:
        self.shown = shown
        self.rows = rows
        self.sequence = sequence
        self.own = own
        self.since = self.sent = now
        self.holders: set[str] = set()
        self.held_at: int | None = None
        self.durable = False

    def overlaps(self, sequence: Sequence) -> bool:
        return self.sequence.first < sequence.until and sequence.first < self.sequence.until

    def differs(self, sequence: Sequence, rows: Batch | None) -> bool:
        """Whether it has other timestamps for tuples that ``sequence`` has as well. For sources without late
        tuples: there each tuple of a sequence is a row."""
        if self.rows is None or rows is None:
            return True
        first, until = max(self.sequence.first, sequence.first), min(self.sequence.until, sequence.until)
        mine = timestamps(self.rows)[first - self.sequence.first : until - self.sequence.first]
        other = timestamps(rows)[first - sequence.first : until - sequence.first]
        return bool((mine != other).any())

    def is_written_as(self, record: Record) -> bool:
        """Whether ``record`` is what holds it apart on disk."""
        assert record.sequence is not None
        mine = (self.sequence.first, *end(self.sequence))
        written = (record.sequence.first, *end(record.sequence))
        return self.held_at is not None and self.rows is record.rows and mine == written


class Progress:
    """One producer, as this entry point knows it. Sequences below ``taken`` are here, below ``shown`` they
    are in the egress log, below ``swept`` they were at the last sweep, below ``safe`` they are durable there,
    below ``allowed`` they may be shown; each with the promise that goes with it. Below ``confirmed`` as many
    peers as are asked for hold them besides: the producer need not keep them."""

    __slots__ = (
        "allowed",
        "attempt",
        "client",
        "confirmed",
        "origin",
        "peers",
        "promise",
        "queue",
        "safe",
        "shown",
        "swept",
        "taken",
    )

    def __init__(self) -> None:
        self.taken = self.shown = self.confirmed = 0
        self.promise = BEGINNING
        self.safe = (0, BEGINNING)
        self.allowed = (0, BEGINNING)
        self.swept = (0, BEGINNING)
        self.attempt = 0
        self.client: str | None = None
        self.origin: str | None = None
        self.queue: deque[Chunk] = deque()
        self.peers: dict[str, Reached] = {}

    def forget_promises(self, attempt: int) -> None:
        """Promises without tuples that origins before ``attempt`` gave, and that were not shown, are void."""
        self.queue = deque(c for c in self.queue if c.rows is not None or c.sequence.attempt >= attempt)

    def drop_from(self, chunk: Chunk) -> None:
        """Takes back ``chunk`` and all behind it."""
        while self.queue.pop() is not chunk:
            pass
        self.taken = self.queue[-1].sequence.until if self.queue else self.shown

    @property
    def waits_to_confirm(self) -> bool:
        return bool(self.queue) and self.queue[0].shown

    @property
    def promised(self) -> int:
        """Of all that is taken, shown or not."""
        return self.queue[-1].sequence.promise if self.queue else self.promise


def end(sequence: Sequence) -> Reached:
    return sequence.until, sequence.promise


def covers(reached: Reached, sequence: Sequence) -> bool:
    """Whether all of ``sequence`` is there, its promise too: an entry point whose clock runs ahead may
    promise beyond what others, further on in the sequence, have promised."""
    return sequence.until <= reached[0] and sequence.promise <= reached[1]


def promise_only(sequence: Sequence) -> Sequence:
    return Sequence(sequence.producer, sequence.until, sequence.until, sequence.promise, sequence.attempt)
