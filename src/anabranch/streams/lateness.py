"""Which tuples of a sequence are late by the sequence's own order, whatever pieces it comes in.

A tuple is late if one before it in the sequence has a timestamp larger by more than the lateness. No clock
takes part, so whoever reads the sequence decides alike.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from anabranch.streams.batch import Ints


def promises(ts: Ints, lateness: int, promised: int) -> Ints:
    """Before each tuple, and behind the last: what can be promised. ``promised``: before the first.

    >>> promises(np.array([10, 12, 9, 20]), 1, 0).tolist()
    [0, 8, 10, 10, 18]
    """
    return np.maximum.accumulate(np.concatenate([[promised], ts - lateness - 1]))


def pieces(ts: Ints, lateness: int, promised: int, most: int) -> Iterator[tuple[int, int, int]]:
    """Cuts a sequence so that one promise serves each piece (first, end, promise): its late tuples are those
    at or behind the promise. At most ``most`` tuples each; the last is by itself where that promises more.

    >>> list(pieces(np.array([10, 12, 9, 20, 30]), 1, 0, 100))
    [(0, 2, 0), (2, 4, 10), (4, 5, 18)]
    """
    before = promises(ts, lateness, promised)
    count = len(ts)
    late = np.flatnonzero(ts <= before[:-1])
    first = 0
    while first < count:
        promise = int(before[first])
        ahead = late[np.searchsorted(late, first) :]
        misjudged = ahead[ts[ahead] > promise]
        end = min(count, first + most, int(misjudged[0]) if len(misjudged) else count)
        if end == count and first < count - 1 and before[count - 1] > promise:
            end = count - 1
        yield first, end, promise
        first = end
