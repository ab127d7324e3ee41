"""Synthetic round-trip times that vary over time: networks to experiment on where none was measured.

Sites lie around the globe where sites are, and what a round trip takes is, in milliseconds,

    base(i, j) + queue(i, t) + queue(j, t) + scale(i, j) * jitter(i, j, t)

- base: light in fibre on the great circle, inflated by detours, plus the access delay of both ends;
- queue: what waits at a site's uplink: a daily swing, and congestion episodes of minutes to hours;
- jitter: drawn anew for each direction every step or some, with a heavy (Pareto) tail.

Links and whole sites also suffer outages of tens of minutes. Everything is drawn by time block from one seed,
so a trace is the same however it is cut into chunks. The parameters of ``SERVERS`` and ``DEVICES`` are fitted
to measurements among servers (PlanetLab) and among personal devices (Seattle); ``anabranch.lab.traces``
compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from anabranch.globe import places, round_trips
from anabranch.rtt import filled
from anabranch.sites import Ints, TopologyError
from anabranch.topology import Topology

Floats = npt.NDArray[np.float32]

_DAY = 86_400.0
_SPACE, _PAIRS, _JITTER, _EPISODES, _OUTAGES = range(5)


class TraceModel(msgspec.Struct, frozen=True):
    """The parameters of a trace. Times are milliseconds where not said otherwise; a spread is the standard
    deviation of the logarithm."""

    inflation: float
    inflation_spread: float
    access: float
    access_spread: float
    jitter: float
    """The median scale of a pair whose base is 100 ms; it grows as the base to the power of
    ``jitter_growth``."""
    jitter_spread: float
    jitter_growth: float
    hold: float
    """How many seconds a pair's jitter stays what it is; at least a step."""
    calm: float
    """The share of the time without jitter."""
    step: float
    """The least jitter of the others, in units of the scale."""
    tail: float
    """The exponent of the survival function: smaller is heavier."""
    daily: float
    """The mean over sites of a day's swing."""
    episodes: float
    """Congestion episodes a site and day."""
    episode_minutes: float
    episode_ms: float
    episode_spread: float
    site_outages: float = 0.3
    """Outages of a whole site in 30 days."""
    link_outages: float = 0.1
    """Outages of a pair of sites in 30 days."""
    outage_minutes: float = 25.0
    outage_spread: float = 0.6


SERVERS = TraceModel(
    inflation=2.0,
    inflation_spread=0.22,
    access=1.5,
    access_spread=1.4,
    jitter=0.5,
    jitter_spread=1.9,
    jitter_growth=0.5,
    hold=0.0,
    calm=0.0,
    step=0.0,
    tail=2.2,
    daily=0.35,
    episodes=0.33,
    episode_minutes=40.0,
    episode_ms=21.0,
    episode_spread=0.7,
)

DEVICES = TraceModel(
    inflation=2.3,
    inflation_spread=0.24,
    access=4.0,
    access_spread=0.32,
    jitter=165.0,
    jitter_spread=0.39,
    jitter_growth=0.0,
    hold=80.0,
    calm=0.63,
    step=0.8,
    tail=1.9,
    daily=10.0,
    episodes=1.2,
    episode_minutes=53.0,
    episode_ms=500.0,
    episode_spread=0.63,
)


class Outage(msgspec.Struct, frozen=True):
    """No message passes between ``a`` and ``b``, or between ``a`` and anyone if ``b`` is None. Seconds."""

    a: str
    b: str | None
    at: float
    until: float


class Traces:
    """A network's round-trip times at every step of ``every`` seconds from 0 on.

    >>> traces = Traces(["paris", "tokyo", "lima"], seed=7)
    >>> traces.rtt(0, 360).shape
    (360, 3, 3)
    >>> bool((traces.rtt(0, 360)[100:] == traces.rtt(100, 260)).all())
    True
    """

    def __init__(
        self,
        names: Sequence[str],
        model: TraceModel = SERVERS,
        *,
        base_ms: npt.ArrayLike | None = None,
        every: float = 10.0,
        seed: int = 0,
    ) -> None:
        """``base_ms``: the round-trip times of an undisturbed network, n x n; drawn if not given."""
        if not names:
            raise TopologyError("a trace needs at least one site")
        if not 0 < every <= _DAY:
            raise TopologyError(f"every is {every} seconds; it must be between 0 and a day")
        if seed < 0:
            raise TopologyError(f"seed is {seed}; it must be 0 or more")
        self.names, self.model, self.every, self.seed = tuple(names), model, every, seed
        n = len(self.names)
        rng = self._rng(_SPACE)
        where = places(rng, n)
        if base_ms is None:
            self.base = round_trips(
                rng, where, (model.inflation, model.inflation_spread), (model.access, model.access_spread)
            )
        else:
            self.base = filled(base_ms)[0]
            if len(self.base) != n:
                raise TopologyError(f"the base matrix has {len(self.base)} rows but there are {n} names")
        rng = self._rng(_PAIRS)
        self._swing = rng.exponential(model.daily, n)
        self._noon = _DAY * (0.5 - where[:, 1] / 360.0)
        spread = rng.standard_normal(n) * (model.jitter_spread / 2)
        pairs = np.triu(rng.standard_normal((n, n)) * (model.jitter_spread / np.sqrt(2)), 1)
        growth = (self.base / 100.0) ** model.jitter_growth
        scale = model.jitter * growth * np.exp(spread[:, None] + spread + pairs + pairs.T)
        np.fill_diagonal(scale, 0.0)
        self._scale = scale.astype(np.float32)
        self._hold = max(1, round(model.hold / every))
        self._block = max(1, min(360, 2**20 // (n * n)))

    def rtt(self, first: int, count: int) -> Floats:
        """Milliseconds at steps ``first`` to ``first + count - 1``, count x n x n; outages left out."""
        if first < 0 or count < 0:
            raise TopologyError(f"steps {first} to {first + count}: a trace begins at step 0")
        out = np.empty((count, len(self.names), len(self.names)), np.float32)
        queue = self._queues(first, count)
        base = self.base.astype(np.float32)
        steps = self._block * self._hold
        done = 0
        while done < count:
            block, skipped = divmod(first + done, steps)
            rows = slice(done, min(done + steps - skipped, count))
            drawn = (skipped + np.arange(rows.stop - done)) // self._hold
            part = np.multiply(self._jitter(block, drawn), self._scale, out=out[rows])
            part += base
            part += queue[rows, :, None]
            part += queue[rows, None, :]
            done = rows.stop
        diagonal = np.arange(len(self.names))
        out[:, diagonal, diagonal] = 0
        return out

    def delays(self, first: int, count: int, outages: bool = True) -> Ints:
        """One-way delays in microseconds, count x n x n. What is sent during an outage waits for its end."""
        delays: Ints = np.rint(self.rtt(first, count) * np.float32(500.0)).astype(np.int64)
        if not outages:
            return delays
        now = (first + np.arange(count)) * self.every
        waits: dict[tuple[int, int], npt.NDArray[np.float64]] = {}
        for outage in self.outages(first, count):
            wait = np.where(now >= outage.at, np.maximum(outage.until - now, 0), 0)
            a = self.names.index(outage.a)
            others = range(len(self.names)) if outage.b is None else [self.names.index(outage.b)]
            for pair in [pair for b in others if b != a for pair in ((a, b), (b, a))]:
                # outages that overlap do not add up: the last one to end counts
                waits[pair] = np.maximum(waits.get(pair, 0), wait)
        for (a, b), wait in waits.items():
            delays[:, a, b] += np.rint(wait * 1e6).astype(np.int64)
        return delays

    def outages(self, first: int, count: int) -> tuple[Outage, ...]:
        """The outages that touch these steps, in the order of their beginning."""
        begin, end = first * self.every, (first + count) * self.every
        above = np.argwhere(np.triu(np.ones((len(self.names),) * 2, bool), 1))
        found = []
        for day in _days(begin, end):
            rng = self._rng(_OUTAGES, day)
            sites = np.repeat(
                np.arange(len(self.names)), rng.poisson(self.model.site_outages / 30, len(self.names))
            )
            links = np.repeat(above, rng.poisson(self.model.link_outages / 30, len(above)), axis=0)
            where = [(self.names[a], None) for a in sites] + [
                (self.names[a], self.names[b]) for a, b in links
            ]
            at = day * _DAY + rng.uniform(0, _DAY, len(where))
            minutes = (
                np.exp(rng.standard_normal(len(where)) * self.model.outage_spread) * self.model.outage_minutes
            )
            until = at + np.minimum(minutes * 60, _DAY)
            for (a, b), start, stop in zip(where, at.round(3).tolist(), until.round(3).tolist(), strict=True):
                if start < end and stop > begin:
                    found.append(Outage(a, b, start, stop))
        return tuple(sorted(found, key=lambda outage: outage.at))

    def topology(self, count: int, first: int = 0, start: int = 0, bandwidth: float = 0.0) -> Topology:
        """The network of these steps, the first at ``start`` microseconds, outages left out: they are
        faults."""
        rtt = self.rtt(first, count).astype(np.float64)
        return Topology.from_rtt(rtt, self.names, bandwidth, every=self.every, start=start)

    def _queues(self, first: int, count: int) -> Floats:
        """What waits at each site's uplink, count x n."""
        now = (first + np.arange(count)) * self.every
        angle = (now[:, None] - self._noon) * (2 * np.pi / _DAY)
        queues = self._swing * (1 + np.cos(angle)) / 2
        begin, end = first * self.every, (first + count) * self.every
        for day in _days(begin, end):
            rng = self._rng(_EPISODES, day)
            sites = np.repeat(np.arange(len(self.names)), rng.poisson(self.model.episodes, len(self.names)))
            at = day * _DAY + rng.uniform(0, _DAY, len(sites))
            lasting = np.minimum(rng.exponential(self.model.episode_minutes * 60, len(sites)), _DAY)
            height = (
                np.exp(rng.standard_normal(len(sites)) * self.model.episode_spread) * self.model.episode_ms
            )
            rows = np.searchsorted(now, [at, at + lasting])
            for site, start, stop, added in zip(sites, *rows, height, strict=True):
                queues[start:stop, site] += added
        total: Floats = queues.astype(np.float32)
        return total

    def _jitter(self, block: int, rows: npt.NDArray[np.int64]) -> Floats:
        """These rows of a block of jitter, in units of the scale."""
        n = len(self.names)
        drawn = self._rng(_JITTER, block).integers(0, 2**16, (self._block, n, n), np.uint16)
        jitter: Floats = self._quantiles[drawn[rows]]
        return jitter

    @cached_property
    def _quantiles(self) -> Floats:
        # a table instead of powers: faster, and the same bits on every machine
        u = (np.arange(2**16) + 0.5) / 2**16
        busy = np.maximum(u - self.model.calm, 0) / (1 - self.model.calm)
        tail = (1 - busy) ** (-1 / self.model.tail) - 1
        return np.where(u < self.model.calm, 0, self.model.step + tail).astype(np.float32)

    def _rng(self, kind: int, block: int = 0) -> np.random.Generator:
        return np.random.default_rng([self.seed, kind, block])


def _days(begin: float, end: float) -> range:
    """The days on which something that touches this time may have begun: nothing lasts longer than a day."""
    return range(max(0, int(begin // _DAY) - 1), int(end // _DAY) + 1)
