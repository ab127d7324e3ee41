"""A hash table from (timestamp, lineage id) to a count, whose entries die when punctuation passes them.

Theory of operation. One open-addressing table with linear probing; a slot is four int64: ts, hi, lo, count,
and count = 0 means empty. An entry with ts <= punctuation is dead: nobody asks for it again, so nothing
needs to remove it at once. A *sweep* removes all dead entries in place, in one pass. It runs when the table
is full, before it grows, and at a punctuation by which more than half of the entries are dead, so that each
entry pays for a constant share of sweeps.

How many are dead is known without looking: ``SPREAD`` counts entries by the bit length of their distance
from ``ANCHOR``, the punctuation of the last sweep. Whatever the scale of time, however sparse or disordered
the stream, the dead are recognised at the latest once time has passed twice as far; there is no bucket
width to choose.

A slot's home is given by the top bits of a hash: a table of another size is filled from front to back.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from anabranch.streams.batch import Ints
from anabranch.streams.compiled import BOOLS, INT, INTS, READ_INTS, compiled, inlined, prefetch
from anabranch.streams.punctuation import BEGINNING

USED, LIMIT, SHIFT, ANCHOR, LATEST, SPREAD = 0, 1, 2, 3, 4, 5
STATE = SPREAD + 65
"""The length of the state: entries, dead or alive; how many there may be; 64 - log2(slots); the timestamp
from which ``SPREAD`` counts; the largest timestamp; ``SPREAD``. What a caller keeps behind it, the table
leaves alone."""

HI, LO, COUNT, SLOT = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
"""Words of a slot, and its size. Unsigned, numba need not look for negative positions in ``slots``."""

SMALLEST = 6
"""log2 of the slots of the smallest table."""

AHEAD = 16
"""Rows between asking the processor for a slot and probing it: in a large table this halves the time."""

LEAVE = -1

Bools = npt.NDArray[np.bool_]


class IdTable:
    """Makes and replaces the arrays on which the compiled functions below work."""

    __slots__ = ("slots", "state")

    def __init__(self, extra: int = 0) -> None:
        self.state = np.zeros(STATE + extra, np.int64)
        self.state[LATEST] = BEGINNING
        self._allocate(SMALLEST)

    def number(self, punctuation: int, ts: Ints, hi: Ints, lo: Ints, again: int = 1) -> Ints:
        """Adds each row to its entry's count and returns that count: 1 for the first row of an id, 1 +
        ``again`` for the second, and so on; 0 for rows behind the punctuation, which have no entry."""
        numbers = np.empty(len(ts), np.int64)
        done = _number(self.slots, self.state, numbers, again, punctuation, 0, ts, hi, lo)
        while done < len(ts):
            self.make_room(punctuation)
            done = _number(self.slots, self.state, numbers, again, punctuation, done, ts, hi, lo)
        return numbers

    def make_room(self, punctuation: int) -> None:
        """Afterwards at least half of the entries that there may be are free."""
        live = _remove_dead(self.slots, self.state, punctuation)
        if 2 * live > self.state[LIMIT]:
            self._refit(live, punctuation)

    def evict(self, punctuation: int) -> None:
        """Entries with ts <= punctuation are dead. It never decreases, and no such entry is added later."""
        entries = _retire(self.slots, self.state, punctuation)
        if entries != LEAVE:
            self._refit(entries, punctuation)

    def live(self, punctuation: int) -> int:
        return int(_count_live(self.slots, punctuation))

    @property
    def nbytes(self) -> int:
        return int(self.slots.nbytes + self.state.nbytes)

    def _refit(self, entries: int, punctuation: int) -> None:
        """Moves to the smallest table of whose limit ``entries`` are at most half."""
        log = SMALLEST
        while 2 * entries > _limit(log):
            log += 1
        old = self.slots
        self._allocate(log)
        _move(old, self.slots, self.state, punctuation)

    def _allocate(self, log: int) -> None:
        words = 4 << log
        memory = np.zeros(words + 8, np.int64)
        skip = -memory.ctypes.data % 64 // 8  # no slot straddles two cache lines
        self.slots = memory[skip : skip + words]
        self.state[LIMIT] = _limit(log)
        self.state[SHIFT] = 64 - log


def _limit(log: int) -> int:
    return (5 << log) // 8


@inlined
def _home(shift: int, ts: int, hi: int, lo: int) -> np.uint64:
    """Where the entry's slot begins if nothing is in its way."""
    h = np.uint64(hi) ^ (np.uint64(lo) * np.uint64(0x9E3779B97F4A7C15))
    h ^= np.uint64(ts) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(32))) * np.uint64(0x94D049BB133111EB)
    return (h >> np.uint64(shift)) * SLOT


@inlined
def _find(slots: Ints, shift: int, ts: int, hi: int, lo: int) -> np.uint64:
    """Where the entry's slot begins, or the empty slot where it belongs."""
    at, mask = _home(shift, ts, hi, lo), np.uint64(slots.shape[0] - 1)
    while slots[at + COUNT] != 0 and not (slots[at + HI] == hi and slots[at + LO] == lo and slots[at] == ts):
        at = (at + SLOT) & mask
    return at


@inlined
def _put(slots: Ints, state: Ints, at: np.uint64, ts: int, hi: int, lo: int, count: int) -> None:
    """Makes an entry of the empty slot ``at``."""
    slots[at], slots[at + HI], slots[at + LO], slots[at + COUNT] = ts, hi, lo, count
    state[USED] += 1
    state[LATEST] = max(state[LATEST], ts)
    ahead = max(ts - state[ANCHOR], 0)
    # A float's exponent is the bit length; if rounding lifts it by one, an entry only looks later than it is.
    length = (np.float64(ahead).view(np.int64) >> 52) - 1022 if ahead > 0 else 0
    state[SPREAD + length] += 1


@inlined
def _insert(slots: Ints, state: Ints, at: np.uint64, ts: int, hi: int, lo: int, punctuation: int) -> None:
    """A new entry, counted once."""
    if state[USED] == 0:
        _reset(state, ts if punctuation == BEGINNING else punctuation)
    _put(slots, state, at, ts, hi, lo, 1)


@inlined
def _reset(state: Ints, anchor: int) -> None:
    state[USED] = 0
    state[ANCHOR] = anchor
    state[LATEST] = BEGINNING
    state[SPREAD:STATE] = 0


@inlined
def _sweep(slots: Ints, state: Ints, punctuation: int) -> int:
    """Takes out each entry in turn and puts it back if it lives. Beginning behind an empty slot, where no
    run of entries wraps around, its new place is never behind its old one."""
    at, mask = np.uint64(0), np.uint64(slots.shape[0] - 1)
    while slots[at + COUNT] != 0:
        at += SLOT
    _reset(state, state[ANCHOR] if punctuation == BEGINNING else punctuation)
    for _ in range(4, slots.shape[0], 4):
        at = (at + SLOT) & mask
        count = slots[at + COUNT]
        if count != 0:
            ts, hi, lo = slots[at], slots[at + HI], slots[at + LO]
            slots[at + COUNT] = 0
            if ts > punctuation:
                _put(slots, state, _find(slots, state[SHIFT], ts, hi, lo), ts, hi, lo, count)
    return int(state[USED])


@compiled(INT, INTS, INTS, INT)
def _remove_dead(slots: Ints, state: Ints, punctuation: int) -> int:
    """Returns how many live."""
    return _sweep(slots, state, punctuation)


@compiled(INT, INTS, INTS, INT)
def _retire(slots: Ints, state: Ints, punctuation: int) -> int:
    """Removes the dead if they are many. Returns the number of entries for which to refit a table that is
    far too large for what it held, or LEAVE."""
    used = state[USED]
    if punctuation >= state[LATEST]:
        if used > 0:
            slots[3::4] = 0
            _reset(state, punctuation)
    else:
        passed, dead = punctuation - state[ANCHOR], 0
        for length in range(63):
            if (1 << length) - 1 > passed:
                break
            dead += state[SPREAD + length]
        # passed < 0: the anchor is the first entry of all, from before the first punctuation.
        if passed >= 0 and 2 * dead <= used:
            return LEAVE
        _sweep(slots, state, punctuation)
    if 8 * used < state[LIMIT] and state[SHIFT] < 64 - SMALLEST:
        return int(used)
    return LEAVE


@compiled(INT, INTS, INTS, INTS, INT)
def _move(old: Ints, new: Ints, state: Ints, punctuation: int) -> int:
    """Fills the empty ``new`` with what lives in ``old``."""
    _reset(state, state[ANCHOR] if punctuation == BEGINNING else punctuation)
    at = np.uint64(0)
    for _ in range(0, old.shape[0], 4):
        if old[at + COUNT] != 0 and old[at] > punctuation:
            ts, hi, lo = old[at], old[at + HI], old[at + LO]
            _put(new, state, _find(new, state[SHIFT], ts, hi, lo), ts, hi, lo, old[at + COUNT])
        at += SLOT
    return int(state[USED])


@compiled(INT, INTS, INT)
def _count_live(slots: Ints, punctuation: int) -> int:
    live = 0
    for at in range(0, slots.shape[0], 4):
        if slots[at + 3] != 0 and slots[at] > punctuation:
            live += 1
    return live


@compiled(INT, INTS, INTS, INTS, INT, INT, INT, READ_INTS, READ_INTS, READ_INTS)
def _number(
    slots: Ints,
    state: Ints,
    numbers: Ints,
    again: int,
    punctuation: int,
    start: int,
    ts: Ints,
    hi: Ints,
    lo: Ints,
) -> int:
    """``IdTable.number`` from row ``start`` on; returns the row that needs room first, or their number."""
    n, shift = ts.shape[0], state[SHIFT]
    if hi.shape[0] != n or lo.shape[0] != n:
        raise ValueError("timestamps and ids must be of one length: one of each for every tuple")
    for i in range(start, n):
        if i + AHEAD < n:
            prefetch(slots, _home(shift, ts[i + AHEAD], hi[i + AHEAD], lo[i + AHEAD]))
        t, high, low = ts[i], hi[i], lo[i]
        if t <= punctuation:
            numbers[i] = 0
            continue
        at = _find(slots, shift, t, high, low)
        if slots[at + COUNT] == 0:
            if state[USED] >= state[LIMIT]:
                return int(i)
            _insert(slots, state, at, t, high, low, punctuation)
        else:
            slots[at + COUNT] += again
        numbers[i] = slots[at + COUNT]
    return int(n)


@compiled(INT, INTS, INTS, BOOLS, INT, INT, INT, INT, READ_INTS, READ_INTS, READ_INTS)
def accept(
    slots: Ints,
    state: Ints,
    fresh: Bools,
    ranks: int,
    lowest: int,
    punctuation: int,
    start: int,
    ts: Ints,
    hi: Ints,
    lo: Ints,
) -> int:
    """Marks in ``fresh`` the rows delivered for the first time; counts arrival ranks in ``state[ranks:]``.

    Rows from ``start`` on; returns how many of these are fresh, or -1 - i if it needs room before row i.
    """
    n, shift, new = ts.shape[0], state[SHIFT], 0
    if hi.shape[0] != n or lo.shape[0] != n:
        raise ValueError("timestamps and ids must be of one length: one of each for every tuple")
    for i in range(start, n):
        if i + AHEAD < n:
            prefetch(slots, _home(shift, ts[i + AHEAD], hi[i + AHEAD], lo[i + AHEAD]))
        t, high, low = ts[i], hi[i], lo[i]
        if t <= punctuation:
            fresh[i] = False
            state[ranks + lowest] += 1
            continue
        at = _find(slots, shift, t, high, low)
        count = slots[at + COUNT]
        if count == 0:
            if state[USED] >= state[LIMIT]:
                return -1 - i
            _insert(slots, state, at, t, high, low, punctuation)
            fresh[i] = True
            state[ranks] += 1
            new += 1
        else:
            slots[at + COUNT] = count + 1
            fresh[i] = False
            state[ranks + min(count, lowest)] += 1
    return new
