"""Chance for the drawing: one seeded generator behind a few verbs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


class Dice:
    """Draws from sequences only: a set or a dict's order must never decide a case.

    >>> Dice(1, 0).between(1, 6) == Dice(1, 0).between(1, 6)
    True
    """

    def __init__(self, seed: int, index: int) -> None:
        self._rng = np.random.default_rng((seed, index))

    def chance(self, probability: float) -> bool:
        return bool(self._rng.random() < probability)

    def between(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``, both included."""
        return int(self._rng.integers(low, high, endpoint=True))

    def uniform(self, low: float, high: float) -> float:
        return float(self._rng.uniform(low, high))

    def seconds(self, low: float, high: float) -> float:
        """A multiple of 1/64 s in [low, high]: exact as a double even beside today's timestamps."""
        return self.between(int(low * 64), int(high * 64)) / 64

    def pick(self, options: Sequence[T]) -> T:
        return options[self.between(0, len(options) - 1)]

    def weighted(self, options: Sequence[tuple[T, float]]) -> T:
        point = self._rng.random() * sum(weight for _, weight in options)
        for option, weight in options:
            point -= weight
            if point < 0:
                return option
        return options[-1][0]

    def sample(self, options: Sequence[T], count: int) -> list[T]:
        """``count`` different ones, in random order."""
        return [options[int(i)] for i in self._rng.permutation(len(options))[:count]]

    def some(self, options: Sequence[T], probability: float) -> list[T]:
        """Each with ``probability``, in their order."""
        return [option for option in options if self.chance(probability)]
