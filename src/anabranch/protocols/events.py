"""What a site must never keep to itself: guarantee 4, as data. Each names the stream and the range it is
about."""

from __future__ import annotations

import msgspec


class Gap(msgspec.Struct, frozen=True, tag=True):
    """Tuples of ``stream`` with ``after`` < timestamp <= ``until`` may be missing at ``at``: no branch can
    bring them."""

    stream: str
    at: str
    after: int
    until: int


class Late(msgspec.Struct, frozen=True, tag=True):
    """``tuples`` of ``source`` with timestamps from ``first`` to ``last`` came behind its lateness bound;
    they are in the side stream ``late/SOURCE`` of ``at``."""

    source: str
    at: str
    tuples: int
    first: int
    last: int


class Poisoned(msgspec.Struct, frozen=True, tag=True):
    """User code of ``operator`` raised on a tuple: it yields nothing."""

    operator: str
    at: str
    timestamp: int
    hi: int
    lo: int
    error: str


class Degraded(msgspec.Struct, frozen=True, tag=True):
    """Entry point ``at`` accepted tuples of ``source`` (to ``until``, exclusive, of ``producer``) that fewer
    peers hold than asked."""

    source: str
    at: str
    producer: str
    until: int
    missing: tuple[str, ...]


class Trimmed(msgspec.Struct, frozen=True, tag=True):
    """Retention took tuples of ``stream`` up to ``until`` at site ``at``; ``consumers`` still need them."""

    stream: str
    at: str
    until: int
    consumers: tuple[str, ...]


class Waiting(msgspec.Struct, frozen=True, tag=True):
    """``operator`` at ``at`` depends on all of history, its input is complete only from ``since``, and no
    peer has sent a snapshot yet."""

    operator: str
    at: str
    since: int


class Disagreement(msgspec.Struct, frozen=True, tag=True):
    """The two ``branches`` of ``stream`` at ``at`` carry different tuples with ``after`` < timestamp <=
    ``until``, though each says that it has brought them all: replicas disagree. Every id that either brings
    passes."""

    stream: str
    at: str
    branches: tuple[str, str]
    after: int
    until: int


class Rejected(msgspec.Struct, frozen=True, tag=True):
    """A message from ``sender`` that this site cannot use: ``reason`` says why; nothing was done."""

    sender: str
    at: str
    reason: str


class Oversized(msgspec.Struct, frozen=True, tag=True):
    """The state of ``operator`` at ``at`` takes ``bytes``, more than a record or a message can: no snapshot
    is kept or sent, and its input is kept instead."""

    operator: str
    at: str
    bytes: int


Event = Gap | Late | Poisoned | Degraded | Trimmed | Waiting | Disagreement | Rejected | Oversized
