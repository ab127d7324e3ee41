"""What can happen to the link from one site to another, simulated or real. Times are seconds on the time
line of whoever plays the faults."""

from __future__ import annotations

import msgspec


class FaultError(ValueError):
    """A fault that cannot happen: the sentence says which, what is wrong and what to do."""


class Cut(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Messages from ``a`` to ``b`` (one direction) are lost."""

    a: str
    b: str
    at: float
    until: float


class Stall(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Messages from ``a`` to ``b`` are held and arrive, in order, from ``until`` on."""

    a: str
    b: str
    at: float
    until: float


class Slow(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Messages from ``a`` to ``b`` take ``factor`` times as long."""

    a: str
    b: str
    at: float
    until: float
    factor: float


class Reopen(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Every connection from ``a`` to ``b`` is reset at ``at``: branches close, and open again."""

    a: str
    b: str
    at: float
