"""The duplicate filter: where branches rejoin, the first copy of each tuple passes and every later one stops.

Algorithm 1 of ``replication-wan.txt`` for streams whose tuples carry lineage ids, so that a duplicate is
one id seen twice. The filter never waits. What it remembers of a tuple, it forgets when punctuation passes
the tuple's timestamp; a tuple that arrives behind the punctuation is a duplicate by law (Algorithm 1, line
2).

Each delivery is counted by branch and arrival rank, also those behind the punctuation, whose rank is no
longer known: they count as lowest. From these counts come the weights 1/1, 1/2, 1/3, ... of section V-B.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from anabranch.streams.batch import Ints
from anabranch.streams.id_table import STATE, Bools, IdTable, accept
from anabranch.streams.punctuation import BEGINNING


class DuplicateFilter:
    """Rejoins ``branches`` branches, numbered from 0.

    >>> ts, hi, lo = (np.array(values) for values in ([1, 2, 3], [7, 7, 7], [1, 2, 3]))
    >>> rejoin = DuplicateFilter(branches=2)
    >>> rejoin.accept(0, ts[:2], hi[:2], lo[:2])
    2
    >>> rejoin.accept(1, ts, hi, lo), rejoin.fresh
    (1, array([False, False,  True]))
    >>> rejoin.weights()
    array([2., 2.])
    >>> rejoin.punctuate(2)
    >>> rejoin.live
    1
    """

    def __init__(self, branches: int) -> None:
        self.branches = branches
        self.punctuation = BEGINNING
        self._table = IdTable(branches * (branches + 1))
        self.fresh: Bools = np.empty(0, np.bool_)
        """For each tuple of the last ``accept``, whether it arrived for the first time."""

    def accept(self, branch: int, ts: Ints, hi: Ints, lo: Ints) -> int:
        """How many of these tuples arrive for the first time on any branch; ``fresh`` says which."""
        if not 0 <= branch < self.branches:
            raise IndexError(
                f"branch {branch} of a duplicate filter that has {self.branches}, numbered from 0"
            )
        self.fresh = fresh = np.empty(len(ts), np.bool_)
        table, k = self._table, self.branches
        ranks = STATE + branch * (k + 1)
        new: int = accept(table.slots, table.state, fresh, ranks, k, self.punctuation, 0, ts, hi, lo)
        if new >= 0:
            return new
        while new < 0:
            start = -1 - new
            table.make_room(self.punctuation)
            new = accept(table.slots, table.state, fresh, ranks, k, self.punctuation, start, ts, hi, lo)
        return int(np.count_nonzero(fresh))

    def punctuate(self, p: int) -> None:
        """Tuples with ts <= p have all arrived. A punctuation that is not the greatest so far says nothing
        new."""
        if p > self.punctuation:
            self.punctuation = p
            self._table.evict(p)

    def restore(self, punctuation: int, ts: Ints, hi: Ints, lo: Ints) -> None:
        """Takes up where a filter stopped: its punctuation, and the tuples it had passed on since. Each of
        these counts as delivered once, by no branch in particular; a later delivery is its second."""
        self.punctuate(punctuation)
        self._table.number(self.punctuation, ts, hi, lo, again=0)

    def add_branch(self) -> int:
        """One more branch; returns its number. What was counted as lowest until now stays where it was
        counted."""
        k = self.branches
        ranks = np.zeros((k + 1, k + 2), np.int64)
        ranks[:k, : k + 1] = self.ranks
        self._table.state = np.concatenate((self._table.state[:STATE], ranks.ravel()))
        self.branches = k + 1
        return k

    @property
    def ranks(self) -> Ints:
        """Deliveries by branch and arrival rank, 0 the first; the last column, ``branches``, is the lowest
        rank there is."""
        return self._table.state[STATE:].reshape(self.branches, self.branches + 1)

    def weights(self) -> npt.NDArray[np.float64]:
        """What each branch contributed (section V-B): the sum over its deliveries of 1/1 for a first, 1/2
        for a second, ..."""
        return self.ranks @ (1.0 / np.arange(1, self.branches + 2))

    @property
    def live(self) -> int:
        """How many tuples it remembers."""
        return self._table.live(self.punctuation)

    @property
    def nbytes(self) -> int:
        return self._table.nbytes
