"""The simulated network: links that delay, hold and lose messages, and never let one overtake another on its
connection."""

from __future__ import annotations

import msgspec

from anabranch.sim.faults import Cut, Fault, Slow, Stall
from anabranch.topology import Topology

SECOND = 1_000_000


class LinkUse(msgspec.Struct):
    """What one direction between two sites has carried. ``cost`` is the paper's network cost before division
    by time: bytes times the delay, in seconds, that each was on the way."""

    bytes: int = 0
    messages: int = 0
    cost: float = 0.0


class _Trouble(msgspec.Struct, frozen=True):
    begin: int
    end: int
    fault: Cut | Stall | Slow


class Network:
    """Times are microseconds; nodes are known here by the site they are at."""

    def __init__(self, topology: Topology, faults: tuple[Fault, ...]) -> None:
        self.use: dict[tuple[str, str], LinkUse] = {}
        self._delay = topology.delay_at
        self._bandwidth = {
            (link.source, link.target): link.bandwidth for link in topology.links if link.bandwidth
        }
        self._free: dict[tuple[str, str], int] = {}
        self._last: dict[object, int] = {}
        self._troubles: dict[tuple[str, str], list[_Trouble]] = {}
        for fault in faults:
            if isinstance(fault, Cut | Stall | Slow):
                trouble = _Trouble(round(fault.at * SECOND), round(fault.until * SECOND), fault)
                self._troubles.setdefault((fault.a, fault.b), []).append(trouble)

    def carry(self, now: int, a: str, b: str, connection: object, size: int) -> int | None:
        """When a message of ``size`` bytes sent now arrives; None if it is lost. Within a site there is no
        network."""
        if a == b:
            return now
        link = (a, b)
        use = self.use.get(link)
        if use is None:
            use = self.use[link] = LinkUse()
        use.bytes += size
        use.messages += 1
        left = now
        if link in self._bandwidth:
            left = max(now, self._free.get(link, now)) + int(size * SECOND / self._bandwidth[link])
            self._free[link] = left
        delay = self._delay(a, b, left)
        arrival: int | None = left + delay
        if link in self._troubles:
            arrival = self._suffer(link, now, left, delay)
        use.cost += size * delay / SECOND
        if arrival is None:
            return None
        arrival = max(arrival, self._last.get(connection, arrival))
        self._last[connection] = arrival
        return arrival

    def _suffer(self, link: tuple[str, str], now: int, left: int, delay: int) -> int | None:
        for trouble in self._troubles[link]:
            if isinstance(trouble.fault, Slow) and trouble.begin <= left < trouble.end:
                delay = int(delay * trouble.fault.factor)
        arrival = left + delay
        for trouble in self._troubles[link]:
            if now < trouble.end and arrival > trouble.begin:
                if isinstance(trouble.fault, Cut):
                    return None
                if isinstance(trouble.fault, Stall):
                    arrival = max(arrival, trouble.end)
        return arrival
