"""What nodes say to each other, beside the records that branches carry."""

from __future__ import annotations

import msgspec

from anabranch.plan import Plan
from anabranch.protocols.records import Sequence
from anabranch.streams.batch import Batch

Version = tuple[int, str]
"""Of a plan: (epoch, coordinator). The higher wins, so that two coordinators do no harm."""


class Submit(msgspec.Struct, frozen=True):
    """Producer to entry point: tuples from sequence ``first`` on (``ts`` if the source gives timestamps, then
    the declared columns). No tuple of these or later sequences has a timestamp <= ``promise`` unless it is
    late; ``high`` is the largest timestamp of all earlier sequences; ``safe`` is what has been acknowledged
    so far. ``attempt`` counts the producer's changes of entry point."""

    source: str
    producer: str
    first: int
    rows: Batch | None
    promise: int
    high: int
    safe: tuple[int, int]
    attempt: int


class Ask(msgspec.Struct, frozen=True):
    """Producer to entry point, at turn ``attempt``: how far do you hold my tuples? Unlike a ``Submit`` it
    does not make the producer known: the source does not wait for it."""

    source: str
    producer: str
    attempt: int


class Accepted(msgspec.Struct, frozen=True):
    """Entry point to producer: every sequence below ``until`` is safe, and ``promise`` is known; no timestamp
    so far is larger than ``high``. ``attempt`` is the last it has heard of: what is sent at an earlier one is
    ignored."""

    source: str
    producer: str
    until: int
    promise: int
    high: int
    attempt: int = 0


class Resend(msgspec.Struct, frozen=True):
    """Entry point to producer: what it submitted from sequence ``first`` on has not arrived."""

    source: str
    producer: str
    first: int


class Mirror(msgspec.Struct, frozen=True):
    """Entry point to peer: identified and timestamped tuples; ``show``: up to this sequence and promise, all
    may be seen downstream."""

    source: str
    rows: Batch | None
    sequence: Sequence
    show: tuple[int, int]


class Mirrored(msgspec.Struct, frozen=True):
    """Peer to entry point: every sequence of ``producer`` below ``until``, and ``promise``, is in its log;
    the last origin it has heard of is that of ``attempt``."""

    source: str
    producer: str
    until: int
    promise: int
    attempt: int


class CatchUp(msgspec.Struct, frozen=True):
    """Entry point to peer: send what you hold of ``source`` that these (``producer``, next sequence) lack."""

    source: str
    known: tuple[tuple[str, int], ...]


class CaughtUp(msgspec.Struct, frozen=True):
    """Peer to entry point, in answer to what it knew (``known``): what it holds, and for each piece of it
    what a log that begins there is complete from; ``taken``: for each producer the next sequence expected.
    ``more``: that was not all, the rest did not fit."""

    source: str
    known: tuple[tuple[str, int], ...]
    mirrors: tuple[Mirror, ...]
    complete_from: tuple[int, ...]
    taken: tuple[tuple[str, int], ...]
    more: bool = False


class Needed(msgspec.Struct, frozen=True):
    """To a site that serves ``stream``: only timestamps > ``timestamp`` are needed any more, by this consumer
    of the stream or by this entry point of the source (``peer``). ``position`` is the next one expected;
    ``version`` is the plan the sender follows."""

    stream: str
    timestamp: int
    position: int
    version: Version
    peer: bool = False


class Heartbeat(msgspec.Struct, frozen=True):
    """A site is alive, and follows the plan ``version``."""

    version: Version


class PlanOffer(msgspec.Struct, frozen=True):
    plan: Plan


class SnapshotRequest(msgspec.Struct, frozen=True):
    operator: str


class Snapshot(msgspec.Struct, frozen=True):
    """State of ``operator`` as of ``punctuation``: every tuple up to it, none behind."""

    operator: str
    punctuation: int
    state: bytes


Message = (
    Submit
    | Ask
    | Accepted
    | Resend
    | Mirror
    | Mirrored
    | CatchUp
    | CaughtUp
    | Needed
    | Heartbeat
    | PlanOffer
    | SnapshotRequest
    | Snapshot
)
