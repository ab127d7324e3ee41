"""What befalls live sites on this machine, as data, and how it is done. Times are seconds after a schedule
begins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from anabranch.link_faults import Cut, Stall
from anabranch.site.cluster import Cluster
from anabranch.site.wan import Wan


class Kill(msgspec.Struct, frozen=True, tag=True):
    """SIGKILL to all processes of ``site``, ``at`` seconds after the beginning; started again ``until``, with
    the log that it has left, or without any."""

    site: str
    at: float
    until: float
    lose_log: bool = False


class KillProcess(msgspec.Struct, frozen=True, tag=True):
    """SIGKILL to one process of ``site``, which the site starts again: its agent, its log server, or Spark's
    driver."""

    site: str
    process: Literal["agent", "nats", "driver"]
    at: float


class CutOff(msgspec.Struct, frozen=True, tag=True):
    """No link to or from ``site`` carries anything between ``at`` and ``until``."""

    site: str
    at: float
    until: float


class StepClock(msgspec.Struct, frozen=True, tag=True):
    """The clock of ``site`` is ahead by ``by`` seconds between ``at`` and ``until``."""

    site: str
    by: float
    at: float
    until: float


Fault = Kill | KillProcess | CutOff | StepClock | Cut | Stall


def end_of(fault: Fault) -> float:
    return fault.at if isinstance(fault, KillProcess) else fault.until


class Fate:
    """Lets faults happen to the sites of ``cluster`` and the links of ``wan``; ``happens`` is told in words
    what."""

    def __init__(self, cluster: Cluster, wan: Wan, happens: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._wan = wan
        self._happens = happens

    async def befall(self, fault: Fault, begun: float) -> None:
        """Returns when the fault is over. ``begun``: when the schedule begins, in seconds since 1970."""
        await _until(begun + fault.at)
        match fault:
            case Kill():
                await self._kill(fault, begun)
            case KillProcess(site=site, process=process):
                await asyncio.to_thread(self._cluster.kill, site, process)
                self._happens(f"{site} loses its {process}: SIGKILL")
            case CutOff(site=site):
                for other in self._cluster.topology.names:
                    if other != site:
                        self._link(Cut(site, other, fault.at, fault.until))
                        self._link(Cut(other, site, fault.at, fault.until))
                self._happens(f"{site} is cut off from everyone")
                await _until(begun + fault.until)
                self._happens(f"{site} is back")
            case StepClock(site=site, by=by):
                await asyncio.to_thread(self._cluster.set_clock, site, by)
                self._happens(f"the clock of {site} is off by {by:+g} s")
                await _until(begun + fault.until)
                await asyncio.to_thread(self._cluster.set_clock, site, 0)
                self._happens(f"the clock of {site} is right again")
            case Cut(a=a, b=b) | Stall(a=a, b=b):
                self._link(fault)
                kind = "is cut" if isinstance(fault, Cut) else "stalls"
                self._happens(f"the link from {a} to {b} {kind}")
                await _until(begun + fault.until)
                self._happens(f"the link from {a} to {b} is whole again")

    async def _kill(self, fault: Kill, begun: float) -> None:
        site = fault.site
        await asyncio.to_thread(self._cluster.kill_site, site, fault.lose_log)
        self._happens(f"{site} is killed: every process of it, SIGKILL")
        await _until(begun + fault.until)
        self._cluster.start(site)
        left = "with nothing" if fault.lose_log else "with its log and nothing else"
        self._happens(f"{site} starts again, {left}")

    def _link(self, fault: Cut | Stall) -> None:
        """The emulator's faults begin at once, and last as long as they say."""
        self._wan.apply(msgspec.structs.replace(fault, at=0.0, until=fault.until - fault.at))


async def _until(when: float) -> None:
    await asyncio.sleep(max(0.0, when - time.time()))
