"""Where tuples enter: when each entry point of a source shows what its producer submits.

Everything a producer submits at t, tuples or a promise, carries the promise t - lateness - 1. Apart from its
tuples it submits one whenever that is a multiple of the punctuation interval or of the slide of a window
downstream, and END when all inputs are over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from anabranch.graph import Source
from anabranch.streams.batch import Ints


class FlowError(ValueError):
    """What the flow model does not cover: the sentence says what, where and what to do."""


class Network(Protocol):
    """A topology, or whatever knows the delay of every link at every time."""

    def delays_at(self, source: str, target: str, t: Ints) -> Ints: ...


def most_within(times: Ints, span: int) -> int:
    """How many of ``times``, ascending, lie within any ``span``.

    >>> most_within(np.array([1, 5, 8, 9, 30]), 4)
    3
    """
    until = np.searchsorted(times, times + span, side="right")
    return int((until - np.arange(len(times))).max(initial=0))


class Entrance:
    """One source. ``sites`` are its entry points, the first being the origin of all tuples, unless they
    arrive replicated from outside: then each entry point is. ``arrivals`` are the times at which its tuples
    arrive, each once, ascending; ``close``: when all inputs are over; ``periods``: of the promises;
    ``patience``: how long a mirroring may take before producer or entry point would do without it."""

    def __init__(
        self,
        source: Source,
        sites: Sequence[str],
        mirrors: int,
        arrivals: Ints,
        close: int,
        periods: Sequence[int],
        patience: int,
        network: Network,
    ) -> None:
        self.sites = tuple(sites)
        self.arrivals = arrivals
        self._promise_age = source.lateness + 1
        self._mirrored = len(sites) > 1 and source.identity == "sequence"
        self._mirrors = min(mirrors, len(sites) - 1)
        self._ends = np.append(arrivals, close)
        self._periods = periods
        self._network = network
        self._acknowledged = self._acknowledgements() if self._mirrored and self._mirrors else arrivals
        waits = self._acknowledged - arrivals
        if len(waits) and int(waits.max()) >= patience:
            raise FlowError(
                f"source {source.name!r}: mirroring takes up to {waits.max() / 1e6:.3f} s, but is waited for "
                f"only {patience / 1e6:.3f} s; raise producer_timeout and mirror_patience, or choose entry "
                "points that are nearer"
            )

    def promised(self, timestamps: Ints) -> Ints:
        """When the producer first submits a promise of at least each of ``timestamps``."""
        when = self._ends[np.searchsorted(self.arrivals, timestamps + self._promise_age)]
        for period in self._periods:
            due = -(-timestamps // period) * period
            when = np.minimum(when, due + self._promise_age)
        return when

    def most_promises(self, span: int) -> int:
        """How many promises may be submitted within any ``span``, at most."""
        return most_within(self.arrivals, span) + sum(span // period + 1 for period in self._periods) + 1

    def shown(self, site: str, submitted: Ints) -> Ints:
        """When ``site`` shows what is submitted at each of these times."""
        if not self._mirrored:
            return submitted
        origin = self.sites[0]
        if site == origin:
            return self._shown_by_origin(submitted)
        # With one mirror the peer shows what it holds; with more it waits for the origin's word.
        left = submitted if self._mirrors <= 1 else self._shown_by_origin(submitted)
        return left + self._network.delays_at(origin, site, left)

    def _shown_by_origin(self, submitted: Ints) -> Ints:
        if not self._mirrors or not len(self.arrivals):
            return submitted
        # A promise alone needs no mirror, but stands in line behind the tuples before it.
        before = np.searchsorted(self.arrivals, submitted, side="right") - 1
        return np.where(before >= 0, np.maximum(submitted, self._acknowledged[before]), submitted)

    def _acknowledgements(self) -> Ints:
        """When as many peers as there are mirrors have said that they hold what arrived."""
        back = []
        for peer in self.sites[1:]:
            there = self.arrivals + self._network.delays_at(self.sites[0], peer, self.arrivals)
            back.append(there + self._network.delays_at(peer, self.sites[0], there))
        nth: Ints = np.sort(np.stack(back), axis=0)[self._mirrors - 1]
        return nth
