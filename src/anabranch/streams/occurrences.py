"""Tuples told apart by content: the j-th arrival of equal content on one branch is the j-th tuple of that
content.

For streams that arrive replicated from outside and carry no common ids. Timestamp, all columns and j
together give a lineage id, the same on every branch, whatever the order; from there on such a stream is
like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from anabranch.streams.batch import Ints
from anabranch.streams.duplicates import DuplicateFilter
from anabranch.streams.hashing import content_lanes, occurrence_ids
from anabranch.streams.id_table import Bools, IdTable
from anabranch.streams.punctuation import BEGINNING


class Occurrences:
    """Numbers equal tuples of one branch of ``source``: ``count[t][i]`` of Algorithm 1, for one i.

    >>> import numpy as np
    >>> seen = Occurrences("load")
    >>> hi, lo = seen.ids(np.array([5, 5, 5]), [pa.array(["a", "b", "a"])])
    >>> len(set(zip(hi.tolist(), lo.tolist())))
    3
    >>> peer = Occurrences("load")
    >>> (peer.ids(np.array([5, 5, 5]), [pa.array(["b", "a", "a"])])[0] == hi[[1, 0, 2]]).all()
    np.True_
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.punctuation = BEGINNING
        self._table = IdTable()

    def ids(self, ts: Ints, columns: Sequence[pa.Array]) -> tuple[Ints, Ints]:
        """``content_ids`` of tuples in their order of arrival. Behind the punctuation nothing is counted
        any more: such a tuple gets the id of an occurrence 0, which is nobody's."""
        lanes = content_lanes(self.source, ts, columns)
        return occurrence_ids(lanes, self._table.number(self.punctuation, ts, lanes[0], lanes[1]))

    def punctuate(self, p: int) -> None:
        """No later tuple has a timestamp <= p; forgets the counts that belong to such."""
        if p > self.punctuation:
            self.punctuation = p
            self._table.evict(p)

    def restore(self, punctuation: int, ts: Ints, columns: Sequence[pa.Array]) -> None:
        """Takes up where a numbering stopped: its punctuation, and the tuples it had numbered since."""
        self.punctuate(punctuation)
        self.ids(ts, columns)

    @property
    def live(self) -> int:
        """How many contents it remembers."""
        return self._table.live(self.punctuation)

    @property
    def nbytes(self) -> int:
        return self._table.nbytes


class ContentFilter:
    """Algorithm 1 to the letter: rejoins branches of ``source`` by content with multiplicity.

    ``count[t][i] > max_count[t]`` (line 4) holds exactly when no branch has brought the tuple numbered
    ``count[t][i]``, because each branch numbers its own from 1 without a gap. So this is a duplicate filter
    over those numbers.
    """

    def __init__(self, source: str, branches: int) -> None:
        self._counts = [Occurrences(source) for _ in range(branches)]
        self._filter = DuplicateFilter(branches)
        self._source = source

    def accept(self, branch: int, ts: Ints, columns: Sequence[pa.Array]) -> tuple[int, Ints, Ints]:
        """How many of these tuples pass (``fresh`` says which), and the ids of all, passed or not."""
        if not 0 <= branch < len(self._counts):
            raise IndexError(
                f"branch {branch} of a content filter that has {len(self._counts)}, numbered from 0"
            )
        hi, lo = self._counts[branch].ids(ts, columns)
        return self._filter.accept(branch, ts, hi, lo), hi, lo

    def punctuate(self, p: int) -> None:
        # Algorithm 1, lines 8 to 11
        for counts in self._counts:
            counts.punctuate(p)
        self._filter.punctuate(p)

    def restore(self, punctuation: int, ts: Ints, columns: Sequence[pa.Array]) -> None:
        """Takes up where a filter stopped: its punctuation, and the tuples it had passed on since
        (``max_count``).

        Which branch had brought how many is not known any more, so each branch must begin again where it is
        complete from that punctuation; what it brings a second time is then counted from 1 and recognised.
        """
        self.punctuate(punctuation)
        self._filter.restore(punctuation, ts, *Occurrences(self._source).ids(ts, columns))

    def add_branch(self) -> int:
        counts = Occurrences(self._source)
        counts.punctuate(self.punctuation)
        self._counts.append(counts)
        return self._filter.add_branch()

    @property
    def punctuation(self) -> int:
        return self._filter.punctuation

    @property
    def fresh(self) -> Bools:
        """For each tuple of the last ``accept``, whether it passed."""
        return self._filter.fresh

    @property
    def ranks(self) -> Ints:
        return self._filter.ranks

    @property
    def live(self) -> int:
        """How many tuples it has passed on that the punctuation has not passed."""
        return self._filter.live

    @property
    def nbytes(self) -> int:
        return self._filter.nbytes + sum(counts.nbytes for counts in self._counts)
