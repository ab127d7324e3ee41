"""One direction of a connection: from a socket into a lane, and out of it into another socket.

Sockets are used directly: a transport would hold bytes of its own, which a fault could not hold up.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

from anabranch.site.wan.shaping import SECOND, Item, Lane, Signal

Clock = Callable[[], int]
"""Microseconds on the topology's time line."""

_BURST = 1 << 20
"""How many bytes one flow may write before it is another's turn."""


class Ends(Protocol):
    """The connection that a flow is one direction of."""

    def arrived(self, flow: Flow, signal: Signal) -> bool:
        """Whether ``signal`` has done its work. If not it stays, and holds up what comes behind it, until the
        flow is pumped again."""

    def ended(self, flow: Flow) -> None:
        """The source has sent its last byte."""

    def source_broke(self, flow: Flow) -> None: ...

    def target_broke(self, flow: Flow) -> None: ...


class Flow:
    """Reads from ``source`` while the lane has room, writes to ``target`` what has arrived. The sockets
    belong to the connection; either may be missing."""

    def __init__(self, ends: Ends, lane: Lane, clock: Clock) -> None:
        self.lane = lane
        self.source: socket.socket | None = None
        self.target: socket.socket | None = None
        self._ends = ends
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle | None = None
        self._reading = False
        self._full = False

    def put(self, item: Item) -> None:
        """``item`` is sent now."""
        self.lane.put(self._clock(), item)
        self._wait()

    def again(self) -> None:
        """All that is under way was lost, and is sent once more."""
        self.lane.again(self._clock())
        self.pump()

    def read_from(self, source: socket.socket) -> None:
        self.source = source
        self._read_or_not()

    def write_to(self, target: socket.socket) -> None:
        self.target = target
        self.pump()

    def stop_reading(self) -> None:
        source, self.source = self.source, None
        if self._reading and source is not None:
            self._loop.remove_reader(source)
        self._reading = False

    def stop_writing(self) -> None:
        """What is under way has nobody to arrive at."""
        if self._full and self.target is not None:
            self._loop.remove_writer(self.target)
        self._full = False
        self.target = None
        self.lane.clear()

    def close(self) -> None:
        self.stop_reading()
        self.stop_writing()
        if self._timer is not None:
            self._timer.cancel()

    def pump(self) -> None:
        """Delivers what has arrived, as far as the target takes it."""
        budget = _BURST
        while budget > 0 and not self._full:
            item = self.lane.front(self._clock())
            if isinstance(item, Signal):
                if (item is Signal.FIN and self.target is None) or not self._ends.arrived(self, item):
                    break
                # what a signal does may have emptied the lane
                if self.lane.front(self._clock()) is item:
                    self.lane.take()
            elif item is None:
                self._wait()
                break
            elif self.target is None:
                break
            else:
                budget -= self._write(self.target, item)
        else:
            self._wait()
        self._read_or_not()

    def _wait(self) -> None:
        """For the front to arrive."""
        due = self.lane.due
        if due is not None and self._timer is None and not self._full:
            self._timer = self._loop.call_later(max(0, due - self._clock()) / SECOND, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self.pump()

    def _write(self, target: socket.socket, data: bytes | memoryview) -> int:
        try:
            count = target.send(data)
        except (BlockingIOError, InterruptedError):
            count = 0
        except OSError:
            self._ends.target_broke(self)
            return 0
        self.lane.take(count)
        if count < len(data):
            self._full = True
            self._loop.add_writer(target, self._on_writable)
        return count

    def _on_writable(self) -> None:
        self._full = False
        if self.target is not None:
            self._loop.remove_writer(self.target)
        self.pump()

    def _read(self) -> None:
        room = self.lane.room(self._clock())
        if self.source is None or not room:
            self._read_or_not()
            return
        try:
            data = self.source.recv(room)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._ends.source_broke(self)
            return
        if data:
            self.put(data)
            self._read_or_not()
        else:
            self.stop_reading()
            self._ends.ended(self)

    def _read_or_not(self) -> None:
        wanted = self.source is not None and self.lane.room(self._clock()) > 0
        if self.source is None or wanted == self._reading:
            return
        if wanted:
            self._loop.add_reader(self.source, self._read)
        else:
            self._loop.remove_reader(self.source)
        self._reading = wanted
