"""How bytes fare on an emulated link: pure code, to which time is an argument.

A ``Direction`` is one direction between two sites: what its link asks for, and the faults in force. A
``Lane`` is one direction of one connection: what was sent and has not arrived, in order. Lanes of the same
direction share its bandwidth and its faults, and nothing else: a lane that stands still holds up no other.

Times are whole microseconds on the topology's time line.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from enum import Enum, auto

import msgspec

from anabranch.link_faults import Cut, Slow, Stall
from anabranch.sites import Link

SECOND = 1_000_000
ENTRY = 512
"""What an item in a lane counts for beside its bytes, so that single bytes cannot fill the memory."""

_QUEUE = 50_000
"""How long a queue builds up before a narrow link, in microseconds of its bandwidth."""

_LARGEST, _SMALLEST = 1 << 18, 1 << 11

Fault = Cut | Stall | Slow


class Signal(Enum):
    """What a connection carries beside bytes, with their delay and in their order."""

    SYN = auto()
    SYN_ACK = auto()
    FIN = auto()
    RST = auto()


Item = bytes | memoryview | Signal


class Direction:
    """One direction between two sites. ``window`` bounds what each of its lanes holds, in bytes; ``jitter``
    is asked for each item's additional delay."""

    def __init__(self, link: Link, window: int = 32 << 20, jitter: Callable[[], int] = int) -> None:
        self.link = link
        self.faults: list[Fault] = []
        self.delivered = 0
        rate = link.bandwidth
        # a read of two milliseconds' worth: its first byte waits for its last
        self.chunk = min(max(int(rate / 500), _SMALLEST), _LARGEST) if rate else _LARGEST
        self._most = window
        self._jitter = jitter
        self._free: int | None = None

    @property
    def blocked(self) -> bool:
        """Nothing arrives while this is so."""
        return any(not isinstance(fault, Slow) for fault in self.faults)

    def arrival(self, now: int, size: int) -> int:
        """When ``size`` bytes sent now arrive if nothing goes wrong; they take up their bandwidth."""
        left = now
        if self.link.bandwidth:
            queued = now if self._free is None else max(now, self._free)
            left = self._free = queued + math.ceil(size * SECOND / self.link.bandwidth)
        return left + self._delay(left) + self._jitter()

    def _delay(self, t: int) -> int:
        delay: float = self.link.delay_at(t)
        for fault in self.faults:
            if isinstance(fault, Slow):
                delay *= fault.factor
        return math.ceil(delay)

    def window(self, now: int) -> int:
        """What a lane may hold: as much as is under way at full bandwidth, and a short queue before it."""
        rate = self.link.bandwidth
        if not rate:
            return self._most
        under_way = int(rate * (self._delay(now) + _QUEUE) / SECOND)
        return min(under_way + 2 * (self.chunk + ENTRY), self._most)

    def begin(self, fault: Fault) -> None:
        self.faults.append(fault)

    def end(self, now: int, fault: Fault) -> bool:
        """``fault`` is over. True if what the lanes hold was lost and has to be sent ``again`` now."""
        if fault not in self.faults:
            return False
        self.faults.remove(fault)
        mended = isinstance(fault, Cut) and not any(isinstance(other, Cut) for other in self.faults)
        if mended:
            self._free = now
        return mended


class _Entry(msgspec.Struct):
    """``due``: not before, and not before what is ahead of it."""

    due: int
    item: Item


class Lane:
    """One direction of one connection. Items arrive in the order in which they were put, never before their
    time, and not while the direction is blocked."""

    def __init__(self, direction: Direction) -> None:
        self.direction = direction
        self.held = 0
        self._queue: deque[_Entry] = deque()

    def put(self, now: int, item: Item) -> None:
        """``item`` is sent now."""
        self._queue.append(_Entry(self.direction.arrival(now, _size(item)), item))
        self.held += _size(item)

    @property
    def due(self) -> int | None:
        """When there is something to look for; None if time alone brings nothing."""
        return self._queue[0].due if self._queue and not self.direction.blocked else None

    def front(self, now: int) -> Item | None:
        """What has arrived and was not taken yet."""
        due = self.due
        return None if due is None or due > now else self._queue[0].item

    def take(self, count: int = 0) -> None:
        """The first ``count`` bytes of the front are delivered; a signal is taken as a whole."""
        entry = self._queue[0]
        if isinstance(entry.item, Signal) or count == len(entry.item):
            self._queue.popleft()
        else:
            entry.item = memoryview(entry.item)[count:]
        self.held -= count
        self.direction.delivered += count

    def again(self, now: int) -> None:
        """What is under way was lost, and is sent once more."""
        for entry in self._queue:
            entry.due = self.direction.arrival(now, _size(entry.item))

    def room(self, now: int) -> int:
        """How many bytes may be put in one item; 0 unless enough to be worth it."""
        window = self.direction.window(now)
        left = window - self.held - ENTRY * (len(self._queue) + 1)
        return min(left, self.direction.chunk) if left >= min(self.direction.chunk, window // 4) else 0

    def clear(self) -> None:
        """Nobody is left to receive it."""
        self._queue.clear()
        self.held = 0


def _size(item: Item) -> int:
    return 0 if isinstance(item, Signal) else len(item)
