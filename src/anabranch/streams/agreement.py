"""Do the branches of a stream carry the same tuples? A running comparison, by buckets of event time.

Of each branch and bucket (a, b] it keeps how many tuples came and the sum of a hash of their ids, whatever
their order. A bucket is *whole* on a branch if all that the branch will ever carry of it has been read:

- the branch's log is complete from a or before;
- what was read of it without a break began with a record before which no timestamp was > a;
- the branch has promised b or more.

Where two branches have a bucket whole, they must agree about it. Each pair is compared once on each bucket.
What is not whole on both is never compared, and a branch that starts over, or whose writer does, is read
anew: so replicas that came late, logs with holes and consumers that crashed disagree with nobody. (A replica
that restarts knows what its log still holds. What was trimmed beyond its own punctuation, because all
consumers had it from faster branches, it appends again: lawfully its branch brings an id twice.)

A branch remembers ``ROOM`` buckets: one that lags further behind is not compared there.
"""

from __future__ import annotations

import numpy as np

from anabranch.streams.batch import Ints
from anabranch.streams.compiled import INT, INTS, READ_INTS, compiled
from anabranch.streams.punctuation import BEGINNING, END

BUCKET = 1_000_000
"""Microseconds of event time: bucket k is (k * BUCKET, (k + 1) * BUCKET]."""

ROOM = 512
"""Buckets that a branch remembers; a power of two. Bucket k is kept in slot k modulo ROOM, three integers
each: k, how many tuples, the sum of their hashes. A later bucket takes the slot of an earlier one."""

_EMPTY = np.tile(np.array([BEGINNING, 0, 0], np.int64), ROOM)
_MIX = -0x61C8864680B583EB

Rows = tuple[Ints, Ints, Ints]
"""Timestamps and ids."""

Dissent = tuple[tuple[str, str], int, int]
"""Two branches, and the bucket (after, until] in which they carry different tuples."""


@compiled(INT, INTS, READ_INTS, READ_INTS, READ_INTS)
def _add(slots: Ints, ts: Ints, hi: Ints, lo: Ints) -> int:
    for i in range(len(ts)):
        bucket = (ts[i] - 1) // BUCKET
        at = 3 * (bucket & (ROOM - 1))
        if slots[at] > bucket:
            continue
        if slots[at] < bucket:
            slots[at], slots[at + 1], slots[at + 2] = bucket, 0, 0
        mixed = (hi[i] ^ (hi[i] >> 29)) * _MIX + lo[i]
        mixed = (mixed ^ (mixed >> 32)) * _MIX
        slots[at + 1] += 1
        slots[at + 2] += mixed ^ (mixed >> 29)
    return 0


@compiled(INT, INTS, INTS, INT, INT, INTS)
def _differ(one: Ints, other: Ints, first: int, until: int, found: Ints) -> int:
    """Writes to ``found`` the buckets from ``first`` to ``until``, exclusive, that differ; how many."""
    n = 0
    for at in range(0, 3 * ROOM, 3):
        # of the earlier one, if they are two, one side knows nothing any more
        bucket = max(one[at], other[at])
        if bucket < first or bucket >= until:
            continue
        if one[at] != other[at] or one[at + 1] != other[at + 1] or one[at + 2] != other[at + 2]:
            found[n] = bucket
            n += 1
    return n


class _Digest:
    """Of one branch, since it was last opened anew."""

    __slots__ = ("begun", "first", "slots", "until")

    def __init__(self, begun: int) -> None:
        self.begun = begun
        self.slots = _EMPTY.copy()
        self.first, self.until = END, BEGINNING
        """The buckets that are whole."""


class Agreement:
    """The branches of one stream.

    >>> rows = [tuple(np.array([x]) for x in (t * BUCKET, 7, i)) for t, i in [(1, 1), (2, 2)]]
    >>> agreement = Agreement()
    >>> for n, at in enumerate((BEGINNING, 1 * BUCKET)):
    ...     agreement.record("rome", at, BEGINNING, rows[n], (n + 1) * BUCKET)
    []
    []
    >>> agreement.record("oslo", BEGINNING, BEGINNING, rows[0], 1 * BUCKET)
    []
    >>> agreement.record("oslo", 1 * BUCKET, BEGINNING, None, 3 * BUCKET)
    [(('oslo', 'rome'), 1000000, 2000000)]
    """

    def __init__(self) -> None:
        self._digests: dict[str, _Digest] = {}
        self._found = np.empty(ROOM, np.int64)
        self._compared: dict[tuple[str, str], int] = {}
        """For each pair, the first bucket that has not been compared."""

    def start_over(self, branch: str) -> None:
        """What is read of the branch from now on does not follow what was read, or it is closed."""
        self._digests.pop(branch, None)

    def clear(self) -> None:
        self._digests.clear()

    def record(
        self, branch: str, high: int, complete_from: int, rows: Rows | None, promise: int
    ) -> list[Dissent]:
        """The next record of a branch: the largest timestamp before it, what its log is complete from, its
        rows and the promise behind them. Returns where it turns out to differ from other branches."""
        digest = self._digests.get(branch)
        if digest is None:
            digest = self._digests[branch] = _Digest(high)
        if rows is not None:
            _add(digest.slots, *rows)
        first, until = -(-max(digest.begun, complete_from) // BUCKET), promise // BUCKET
        if until <= digest.until and first == digest.first:
            return []
        digest.first, digest.until = first, max(until, digest.until)
        return [
            dissent for other in self._digests if other != branch for dissent in self._compare(branch, other)
        ]

    def _compare(self, branch: str, other: str) -> list[Dissent]:
        pair = (branch, other) if branch < other else (other, branch)
        one, two = self._digests[branch], self._digests[other]
        first = max(one.first, two.first, self._compared.get(pair, BEGINNING))
        until = min(one.until, two.until)
        if first >= until:
            return []
        self._compared[pair] = until
        n = _differ(one.slots, two.slots, first, until, self._found)
        if n == 0:
            return []
        found = self._found
        return [(pair, bucket * BUCKET, (bucket + 1) * BUCKET) for bucket in sorted(found[:n].tolist())]
