"""What an entry point knows of one producer: how far its tuples are here, and which wait to be shown."""

from __future__ import annotations

from collections import deque

from anabranch.protocols.records import Sequence
from anabranch.streams.batch import Batch
from anabranch.streams.punctuation import BEGINNING

Reached = tuple[int, int]
"""How far a producer's stream has come: all sequences below the first, and the promise that goes with it."""


class Chunk:
    """Consecutive tuples of a producer that are taken and not yet shown. ``own``: this is their origin."""

    __slots__ = ("held_at", "holders", "own", "rows", "sent", "sequence", "since")

    def __init__(self, rows: Batch | None, sequence: Sequence, own: bool, now: int) -> None:
        self.rows = rows
        self.sequence = sequence
        self.own = own
        self.since = self.sent = now
        self.holders: set[str] = set()
        self.held_at: int | None = None


class Progress:
    """One producer, as this entry point knows it. Sequences below ``taken`` are here, below ``shown`` they
    are in the egress log, below ``safe`` they are durable there, below ``held`` durable apart, below
    ``allowed`` they may be shown; each with the promise that goes with it."""

    __slots__ = (
        "allowed",
        "attempt",
        "client",
        "held",
        "origin",
        "peers",
        "promise",
        "queue",
        "safe",
        "shown",
        "taken",
    )

    def __init__(self) -> None:
        self.taken = self.shown = 0
        self.promise = BEGINNING
        self.safe = (0, BEGINNING)
        self.allowed = (0, BEGINNING)
        self.held = (0, BEGINNING)
        self.attempt = 0
        self.client: str | None = None
        self.origin: str | None = None
        self.queue: deque[Chunk] = deque()
        self.peers: dict[str, Reached] = {}

    @property
    def promised(self) -> int:
        """Of all that is taken, shown or not."""
        return self.queue[-1].sequence.promise if self.queue else self.promise


def end(sequence: Sequence) -> Reached:
    return sequence.until, sequence.promise


def promise_only(sequence: Sequence) -> Sequence:
    return Sequence(sequence.producer, sequence.until, sequence.until, sequence.promise, sequence.attempt)
