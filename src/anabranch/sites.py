"""Sites and links as data, and the delay of a link at any time.

A link's delay is a piecewise linear function of time in whole microseconds, rounded down. The scalar and the
vectorised form compute the same integers.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from anabranch.durations import LONGEST

Ints = npt.NDArray[np.int64]

FARTHEST = 2**60
"""The limit of every time in a topology: differences of two of them stay exact in int64."""

_EXACT = 2**62
_NAME = re.compile(r"[A-Za-z0-9_-]+")


class TopologyError(ValueError):
    """A topology that cannot be used: the sentence says what, where and what to do."""


class Site(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A place with its own compute and its own log. ``retention`` bounds its log, in microseconds of event
    time."""

    name: str
    capacity: float = 1.0
    retention: int = 600_000_000

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise TopologyError(f"site name {self.name!r}: use letters, digits, '-' and '_' only")
        if not 0 < self.capacity < float("inf"):
            raise TopologyError(
                f"site {self.name!r}: capacity is {self.capacity}, it must be a positive number"
            )
        if not 0 < self.retention <= LONGEST:
            raise TopologyError(
                f"site {self.name!r}: retention is {self.retention} us, it must be longer than zero "
                "and at most a thousand years"
            )


class Link(msgspec.Struct, frozen=True, dict=True, forbid_unknown_fields=True):
    """One direction between two sites: a one-way delay that may vary over time, and a bandwidth in bytes/s
    (0: unlimited).

    ``at`` and ``delay`` are a piecewise linear function in microseconds, constant before the first and after
    the last point. No message overtakes another: a delay never falls faster than time passes, and one given
    to fall faster is raised at construction to the least that does not.

    >>> Link("a", "b", (0, 10_000, 20_000), (5_000, 90_000, 5_000)).delay
    (5000, 90000, 80000)
    """

    source: str
    target: str
    at: tuple[int, ...]
    delay: tuple[int, ...]
    bandwidth: float = 0.0

    def __post_init__(self) -> None:
        where = f"link from {self.source!r} to {self.target!r}"
        if self.source == self.target:
            raise TopologyError(f"{where}: a site needs no link to itself; remove it")
        if len(self.at) != len(self.delay) or not self.at:
            raise TopologyError(
                f"{where}: {len(self.at)} times but {len(self.delay)} delays; "
                "give one delay for each time, at least one"
            )
        if not 0 <= self.bandwidth < float("inf"):
            raise TopologyError(
                f"{where}: bandwidth is {self.bandwidth}, it must be bytes a second, or 0 for no limit"
            )
        if min(self.delay) < 0 or max(self.delay) > LONGEST:
            raise TopologyError(f"{where}: a delay must be between 0 and a thousand years ({LONGEST} us)")
        if max(map(abs, self.at)) > FARTHEST:
            raise TopologyError(f"{where}: a time must be between -{FARTHEST} and {FARTHEST} us")
        if len(self.at) > 1:
            if any(early >= late for early, late in pairwise(self.at)):
                raise TopologyError(f"{where}: its times must increase from point to point; sort them")
            msgspec.structs.force_setattr(self, "delay", _without_overtaking(self.at, self.delay))

    def delay_at(self, t: int) -> int:
        """The one-way delay in microseconds of what is sent at ``t``."""
        at, delay = self.at, self.delay
        i = bisect_right(at, t)
        if i == 0:
            return delay[0]
        if i == len(at):
            return delay[-1]
        start, before = at[i - 1], delay[i - 1]
        return before + (delay[i] - before) * (t - start) // (at[i] - start)

    def delays_at(self, t: Ints) -> Ints:
        """``delay_at`` of every element."""
        if len(self.at) == 1:
            return np.full(t.shape, self.delay[0], np.int64)
        at, delay, rise, span, narrow = self._segments
        t = np.clip(t, at[0], at[-1])
        i = np.searchsorted(at[1:-1], t, side="right")
        passed = t - at[i]
        out: Ints = delay[i] + np.floor_divide(np.where(narrow[i], rise[i], 0) * passed, span[i])
        for n in () if narrow.all() else np.flatnonzero(~narrow[i]):
            # rise * passed would not fit into int64: Python's integers do not overflow
            out.flat[n] += int(rise[i.flat[n]]) * int(passed.flat[n]) // int(span[i.flat[n]])
        return out

    @cached_property
    def _segments(self) -> tuple[Ints, Ints, Ints, Ints, npt.NDArray[np.bool_]]:
        at, delay = np.array(self.at, np.int64), np.array(self.delay, np.int64)
        rise, span = np.diff(delay), np.diff(at)
        narrow = np.array([abs(r) * s < _EXACT for r, s in zip(rise.tolist(), span.tolist(), strict=True)])
        return at, delay, rise, span, narrow


def constant(source: str, target: str, delay: int, bandwidth: float = 0.0) -> Link:
    """A link whose delay, in microseconds, does not vary."""
    return Link(source, target, (0,), (delay,), bandwidth)


def links_between(
    matrix_ms: npt.NDArray[np.float64], names: Sequence[str], bandwidth: float, start: int, every: int
) -> list[Link]:
    """The links of sites whose round-trip times (T x n x n, no gaps) are known every ``every`` microseconds
    from ``start`` on."""
    at = tuple(start + every * i for i in range(len(matrix_ms)))
    delays = np.rint(matrix_ms * 500.0).astype(np.int64)
    links = []
    for i, source in enumerate(names):
        for j, target in enumerate(names):
            if i == j:
                continue
            delay = delays[:, i, j]
            if (delay == delay[0]).all():
                links.append(constant(source, target, int(delay[0]), bandwidth))
            else:
                links.append(Link(source, target, at, tuple(delay.tolist()), bandwidth))
    return links


def _without_overtaking(at: tuple[int, ...], delay: tuple[int, ...]) -> tuple[int, ...]:
    arrival = np.array(at, np.int64) + np.array(delay, np.int64)
    latest = np.maximum.accumulate(arrival)
    if np.array_equal(arrival, latest):
        return delay
    return tuple((latest - np.array(at, np.int64)).tolist())
