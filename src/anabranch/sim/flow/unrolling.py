"""A network over months: its delays are drawn when they are needed and forgotten when they are past."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from anabranch.streams.batch import Ints

_BLOCK = 2160
"""Steps drawn at a time."""


class Unrolling:
    """Delays given at every step of ``every`` microseconds from 0 on; between steps they change linearly. The
    same integers as those of a :class:`Topology` whose links have all these points: no message overtakes
    another.

    ``steps(first, count)``: count x n x n one-way delays in microseconds, as of ``Traces.delays``.

    >>> def steps(first, count):
    ...     return np.arange(first, first + count)[:, None, None] * np.ones((2, 2), np.int64)
    >>> ramp = Unrolling(["a", "b"], 100, steps)
    >>> ramp.delays_at("a", "b", np.array([0, 149, 250, 1000])), ramp.delays_at("a", "a", np.array([250]))
    (array([ 0,  1,  2, 10]), array([0]))
    """

    def __init__(self, names: Sequence[str], every: int, steps: Callable[[int, int], Ints]) -> None:
        self._index = {name: i for i, name in enumerate(names)}
        self._every = every
        self._steps = steps
        self._first = 0
        self._delays = np.empty((len(names), len(names), 0), np.int64)
        self._latest = np.full((len(names), len(names)), np.iinfo(np.int64).min)
        """When the last message sent before the next step arrives, at the latest."""

    def delays_at(self, source: str, target: str, t: Ints) -> Ints:
        """Delays at times that are not forgotten."""
        if source == target or not len(t):
            return np.zeros(t.shape, np.int64)
        step = t // self._every
        past = t - step * self._every
        last = int(step.max()) + 1
        while last >= self._end:
            self._draw()
        step -= self._first
        assert int(step.min()) >= 0, "a delay was asked for that has been forgotten"
        delays = self._delays[self._index[source], self._index[target]]
        before = delays[step]
        rise: Ints = delays[step + 1]
        rise -= before
        rise *= past
        rise //= self._every
        rise += before
        return rise

    def forget(self, before: int) -> None:
        """No delay at an earlier time will be asked for."""
        step = before // self._every
        if step > self._first:
            self._delays = self._delays[:, :, step - self._first :].copy()
            self._first = step

    @property
    def _end(self) -> int:
        return self._first + self._delays.shape[2]

    def _draw(self) -> None:
        at = (self._end + np.arange(_BLOCK)) * self._every
        drawn = np.ascontiguousarray(self._steps(self._end, _BLOCK).transpose(1, 2, 0))
        drawn += at
        np.maximum(drawn[:, :, 0], self._latest, out=drawn[:, :, 0])
        np.maximum.accumulate(drawn, axis=2, out=drawn)
        self._latest = drawn[:, :, -1].copy()
        drawn -= at
        self._delays = np.concatenate([self._delays, drawn], axis=2)
