"""What remains of the times of tuples that are too many to keep: distributions of latencies, totals of
branches."""

from __future__ import annotations

import msgspec
import numpy as np

from anabranch.plan import Branch
from anabranch.streams.batch import Ints

_SHIFT = 16
"""A float32 without its last 16 bits: 128 bins from each power of two to the next."""


class Distribution:
    """Of non-negative integers, in bins no wider than 1/128 of their values.

    >>> d = Distribution()
    >>> d.add(np.arange(1, 100_001))
    >>> d.count, d.mean, d.most
    (100000, 50000.5, 100000)
    >>> all(abs(d.quantile(q) - 100_000 * q) <= 100_000 * q / 128 for q in (0.01, 0.5, 0.99))
    True
    """

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.most = 0
        self._bins = np.zeros(2**15, np.int64)

    def add(self, values: Ints) -> None:
        if not len(values):
            return
        self.count += len(values)
        self.total += int(values.sum())
        self.most = max(self.most, int(values.max()))
        bins = values.astype(np.float32).view(np.int32) >> _SHIFT
        self._bins += np.bincount(bins, minlength=len(self._bins))

    def merge(self, other: Distribution) -> None:
        self.count += other.count
        self.total += other.total
        self.most = max(self.most, other.most)
        self._bins += other._bins

    @property
    def mean(self) -> float:
        return self.total / max(1, self.count)

    def quantile(self, q: float) -> float:
        """The middle of the bin in which a share ``q`` of the values is reached; NaN if there are none."""
        if not self.count:
            return float("nan")
        reached = int(np.searchsorted(np.cumsum(self._bins), q * self.count))
        low, high = self._edges(np.array([reached, reached + 1]))
        return float(min(round((low + high) / 2), self.most))

    def histogram(self) -> list[tuple[float, int]]:
        """The lower edge and the count of every bin that is not empty."""
        filled = np.flatnonzero(self._bins)
        return list(zip(self._edges(filled), self._bins[filled].tolist(), strict=True))

    @staticmethod
    def _edges(bins: Ints) -> list[float]:
        edges: list[float] = (bins << _SHIFT).astype(np.int32).view(np.float32).astype(np.float64).tolist()
        return edges


class BranchUse(msgspec.Struct):
    """What a branch has carried: tuples, and the microseconds they were on the way, added up."""

    tuples: int = 0
    on_the_way: int = 0


class Summary:
    """Of many lots of tuples: ``latencies`` (delivered - ts, in microseconds) for each application,
    ``branches``."""

    def __init__(self) -> None:
        self.latencies: dict[str, Distribution] = {}
        self.branches: dict[Branch, BranchUse] = {}

    @property
    def latency(self) -> Distribution:
        """Of all applications together."""
        merged = Distribution()
        for each in self.latencies.values():
            merged.merge(each)
        return merged

    def network_cost(self, tuple_bytes: dict[str, int], seconds: float) -> dict[Branch, float]:
        """The paper's: of each branch, rate times latency, in bytes, for tuples of these sizes."""
        return {
            branch: tuple_bytes[branch.stream] * use.on_the_way / 1e6 / seconds
            for branch, use in self.branches.items()
        }
