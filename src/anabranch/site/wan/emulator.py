"""The network between live sites on one machine: relays for all ordered pairs, and what befalls the links."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from anabranch.link_faults import Cut, Reopen, Slow
from anabranch.site.wan.faults import Fault, Heal, Lasting, Reset, check
from anabranch.site.wan.flow import Flow
from anabranch.site.wan.relay import Address, Relay
from anabranch.site.wan.shaping import SECOND, Direction
from anabranch.topology import Topology, TopologyError

SMALLEST_WINDOW = 1 << 16


class InForce(msgspec.Struct, frozen=True):
    """``left_s``: seconds until it is over; None: until it is healed."""

    kind: str
    left_s: float | None
    factor: float | None = None


class LinkStatus(msgspec.Struct, frozen=True):
    """One direction between two sites. ``address`` is where processes of ``source`` find the server of
    ``target``, ``connections`` how many are open there. ``delivered`` and ``held`` count the bytes from
    ``source`` to ``target`` on all connections, whoever opened them: those that have arrived, and those that
    are under way."""

    source: str
    target: str
    address: Address
    connections: int
    delivered: int
    held: int
    faults: tuple[InForce, ...]


class _Ongoing:
    """A fault in force: since when, until when, and the timer that ends it. Times are the clock's."""

    def __init__(self, fault: Lasting, begun: float, until: float) -> None:
        self.fault = fault
        self.begun = begun
        self.until = until
        self.over = asyncio.Event()
        self.timer: asyncio.Handle | None = None

    def told(self, now: float) -> InForce:
        left = None if self.until == math.inf else max(0.0, self.until - now)
        factor = self.fault.factor if isinstance(self.fault, Slow) else None
        return InForce(type(self.fault).__name__.lower(), left, factor)

    def end(self) -> None:
        self.over.set()
        if self.timer is not None:
            self.timer.cancel()


class Wan:
    """The links of ``topology`` between live sites.

    ``clock`` gives seconds and runs as fast as the event loop's. The topology's time begins when ``start`` is
    called: at its earliest trace, or at 0. ``jitter`` is the most, in seconds, by which a read of bytes is
    delayed further, drawn evenly from ``seed``. ``window`` bounds the bytes that a connection holds in each
    direction. A cut of at least ``reset_after`` seconds breaks, when it is over, the connections that it
    befell; shorter ones go on, as if their bytes were sent again.

    Belongs to the event loop that called ``start``; nothing here blocks.
    """

    def __init__(
        self,
        topology: Topology,
        clock: Callable[[], float] = time.monotonic,
        *,
        jitter: float = 0.0,
        seed: int = 0,
        window: int = 32 << 20,
        reset_after: float = math.inf,
    ) -> None:
        if window < SMALLEST_WINDOW:
            raise ValueError(f"a window of {window} bytes is too small; give {SMALLEST_WINDOW} or more")
        if not 0 <= jitter < math.inf or not reset_after >= 0:
            raise ValueError("jitter and reset_after are seconds, not less than 0")
        self.topology = topology
        self._clock = clock
        self._reset_after = reset_after
        most, chance = round(jitter * SECOND), random.Random(seed)  # noqa: S311 - no secret
        drawn = (lambda: chance.randint(0, most)) if most else int
        self._directions = {
            (a, b): Direction(topology.link(a, b), window, drawn)
            for a in topology.names
            for b in topology.names
            if a != b
        }
        self._origin = min((link.at[0] for link in topology.links if len(link.at) > 1), default=0)
        self._begun = 0.0
        self._servers: dict[str, Address] = {}
        self._relays: dict[tuple[str, str], Relay] = {}
        self._ongoing: dict[tuple[str, str], list[_Ongoing]] = {pair: [] for pair in self._directions}

    async def start(self, servers: Mapping[str, Address]) -> None:
        """Opens a relay for every ordered pair of sites. A site without a server refuses connections, until
        it is given one."""
        for site in servers:
            self.topology.site(site)
        if self._relays:
            raise RuntimeError("the link emulator runs already; close it before it is started again")
        self._begun = self._clock()
        self._servers = dict(servers)
        try:
            for (a, b), there in self._directions.items():
                back = self._directions[b, a]
                self._relays[a, b] = Relay(there, back, self.now, self._servers.get(b))
        except BaseException:
            await self.close()
            raise

    def now(self) -> int:
        """Microseconds on the topology's time line."""
        return self._origin + int((self._clock() - self._begun) * SECOND)

    def address(self, a: str, b: str) -> Address:
        """Where processes of ``a`` find the server of ``b``; within a site that is the server itself."""
        self._check_sites(a, b)
        if a != b:
            return self._running((a, b)).address
        if a not in self._servers:
            raise TopologyError(f"site {a!r} has no server; give it one with set_server")
        return self._servers[a]

    def set_server(self, site: str, host: str, port: int) -> None:
        """New connections to ``site`` lead there; those that are open stay as they are."""
        self.topology.site(site)
        self._servers[site] = (host, port)
        for (_, b), relay in self._relays.items():
            if b == site:
                relay.server = (host, port)

    def apply(self, fault: Fault) -> None:
        """``fault`` begins now. A Cut, Stall or Slow is over after ``until - at`` seconds; one whose
        ``until`` is infinite lasts until it is healed."""
        check(fault, self.topology)
        self._apply(fault)

    def _apply(self, fault: Fault) -> _Ongoing | None:
        pair = (fault.a, fault.b)
        match fault:
            case Heal():
                self._heal(pair)
            case Reset():
                self._running(pair).reset()
            case Reopen():
                # the branches from a to b travel on connections that b has opened
                self._running((fault.b, fault.a)).reset()
            case _:
                return self._begin(pair, fault)
        return None

    async def play(self, schedule: Iterable[Fault]) -> None:
        """Applies each fault when it is due, in seconds from now; returns when the last that ends is over. A
        schedule that cannot be played is refused before anything happens."""
        faults = [check(fault, self.topology) for fault in schedule]
        begun = self._clock()
        ending = []
        for fault in sorted(faults, key=lambda fault: fault.at):
            await self._until(begun + fault.at)
            ongoing = self._apply(fault)
            if ongoing is not None and ongoing.until < math.inf:
                ending.append(ongoing)
        for ongoing in ending:
            await ongoing.over.wait()

    async def _until(self, when: float) -> None:
        while (wait := when - self._clock()) > 0:
            await asyncio.sleep(wait)

    def _check_sites(self, *names: str) -> None:
        for name in names:
            self.topology.site(name)

    def _running(self, pair: tuple[str, str]) -> Relay:
        try:
            return self._relays[pair]
        except KeyError:
            raise RuntimeError("the link emulator does not run; call start first") from None

    def _flows(self, pair: tuple[str, str]) -> list[Flow]:
        """What carries bytes from the one to the other, whoever opened the connection."""
        a, b = pair
        opened, answering = self._running((a, b)).connections, self._running((b, a)).connections
        return [connection.out for connection in opened] + [connection.back for connection in answering]

    def _begin(self, pair: tuple[str, str], fault: Lasting) -> _Ongoing:
        self._running(pair)
        begun, length = self._clock(), fault.until - fault.at
        ongoing = _Ongoing(fault, begun, begun + length)
        self._directions[pair].begin(fault)
        self._ongoing[pair].append(ongoing)
        if length < math.inf:
            ongoing.timer = asyncio.get_running_loop().call_later(length, self._end, pair, ongoing)
        return ongoing

    def _heal(self, pair: tuple[str, str]) -> None:
        for ongoing in list(self._ongoing[pair]):
            self._end(pair, ongoing)

    def _end(self, pair: tuple[str, str], ongoing: _Ongoing) -> None:
        ongoing.end()
        self._ongoing[pair].remove(ongoing)
        lost = self._directions[pair].end(self.now(), ongoing.fault)
        if isinstance(ongoing.fault, Cut) and self._clock() - ongoing.begun >= self._reset_after:
            a, b = pair
            self._relays[a, b].reset(established_only=True)
            self._relays[b, a].reset(established_only=True)
        for flow in self._flows(pair):
            if lost:
                flow.again()
            else:
                flow.pump()

    def status(self) -> tuple[LinkStatus, ...]:
        """One for each direction, in the order of the topology's sites."""
        now = self._clock()
        return tuple(
            LinkStatus(
                *pair,
                relay.address,
                len(relay.connections),
                self._directions[pair].delivered,
                sum(flow.lane.held for flow in self._flows(pair)),
                tuple(ongoing.told(now) for ongoing in self._ongoing[pair]),
            )
            for pair, relay in self._relays.items()
        )

    async def close(self) -> None:
        """Closes every relay and connection; faults in force are over."""
        for faults in self._ongoing.values():
            for ongoing in faults:
                ongoing.end()
            faults.clear()
        for direction in self._directions.values():
            direction.faults.clear()
        for relay in self._relays.values():
            relay.close()
        self._relays.clear()
        # what the closed connections have cancelled ends before this returns
        await asyncio.sleep(0)
