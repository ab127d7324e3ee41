"""Which timestamps lie before a position of a log: where a branch must start, and what may be trimmed.

Only where the largest timestamp so far rises is anything remembered, so an index is never longer than its
log and mostly far shorter.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from anabranch.streams.punctuation import BEGINNING


class PositionIndex:
    """The records of one log, by position: integers that increase.

    >>> log = PositionIndex()
    >>> for position, max_ts in enumerate([10, 30, 20, 40]):
    ...     log.append(position, max_ts)
    >>> [log.high(position) for position in range(5)] == [BEGINNING, 10, 30, 30, 40]
    True
    >>> log.complete_from(30), log.complete_from(29), log.complete_from(40)
    (3, 1, 4)
    >>> log.trim_before(30), log.trim_before(99)
    (3, 3)
    """

    def __init__(self, first: int = 0, high: int = BEGINNING) -> None:
        """An empty log whose first record will be at ``first`` or later; ``high``: the largest timestamp of
        what was trimmed."""
        self.first = first
        """The first position that is still in the log, or will be."""
        self.end = first
        """The position behind the last record."""
        self._last = first
        self._trimmed_high = high
        # Records whose timestamp exceeds all before them: positions and those timestamps, both increasing.
        self._positions: list[int] = []
        self._highs: list[int] = []

    def append(self, position: int, max_ts: int) -> None:
        """A record whose largest timestamp is ``max_ts``; BEGINNING for a record without tuples."""
        if position < self.end:
            raise ValueError(
                f"position {position} is not behind the end of the log, {self.end}: append in order"
            )
        if max_ts > (self._highs[-1] if self._highs else self._trimmed_high):
            self._positions.append(position)
            self._highs.append(max_ts)
        self._last, self.end = position, position + 1

    def high(self, position: int) -> int:
        """The largest timestamp of all records before ``position``, trimmed ones included: from there on, a
        branch that starts at ``position`` is complete. BEGINNING if there are none."""
        i = bisect_left(self._positions, position)
        return self._highs[i - 1] if i else self._trimmed_high

    def complete_from(self, c: int) -> int:
        """The last position at which a branch may start and still be complete from ``c``: the greatest with
        ``high`` <= c.

        Where even that was trimmed it is ``first``, complete only from ``high(first)``.
        """
        i = bisect_right(self._highs, c)
        if c < self._trimmed_high:
            return self.first
        return self._positions[i] if i < len(self._positions) else self.end

    def trim_before(self, ts: int) -> int:
        """The first position that must be kept if tuples with a timestamp <= ``ts`` may go: no record
        before it has a later one. The last record stays in any case: it tells the position and punctuation
        at which its log stands."""
        return max(self.first, min(self.complete_from(ts), self._last))

    def trimmed(self, position: int) -> None:
        """Records before ``position`` are gone."""
        position = min(position, self.end)
        if position <= self.first:
            return
        self._trimmed_high = self.high(position)
        gone = bisect_left(self._positions, position)
        del self._positions[:gone], self._highs[:gone]
        self.first = position

    def truncate(self, end: int) -> None:
        """The log lost its tail: ``end`` is the position behind the last record left, where a new one may
        go."""
        if end >= self.end:
            return
        kept = bisect_left(self._positions, end)
        del self._positions[kept:], self._highs[kept:]
        self.first = min(self.first, end)
        self.end = end
        self._last = max(self.first, end - 1)
