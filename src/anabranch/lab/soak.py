"""Live sites for a long time: one of them goes down and comes back every minute, memory and disk are watched,
and what the applications receive is held against the ideal run all the while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from anabranch.graph import Graph
from anabranch.lab.auditor import Difference
from anabranch.lab.endless import Endless, now
from anabranch.lab.footprint import MINUTE, Growth, disk, growth, memory
from anabranch.lab.live import LiveSites
from anabranch.lab.live_faults import Kill
from anabranch.lab.places import world
from anabranch.plan import Subscription, copies
from anabranch.protocols.settings import Settings
from anabranch.query import Query
from anabranch.site.config import Spark

SITES = ("dublin", "frankfurt", "singapore", "virginia")
COPIES = ("frankfurt", "virginia")
CYCLING = "virginia"
ENTRIES = {"load": ("dublin", "singapore"), "rtt": ("singapore", "dublin")}
NEAR = "dublin"
DOWN = (20.0, 40.0)
"""Seconds of each minute between which a site is down."""
SAMPLE = 5.0
KEYS = 500
PATIENCE = 300.0


class Soak(msgspec.Struct, frozen=True):
    """``memory_mb`` and ``disk_mb``: of each site, and of ``all``; memory that of all processes, disk that
    below the sites' directories. ``audited``: tuples of ideal runs that were compared."""

    minutes: float
    rate: float
    entered: int
    audited: int
    exact: bool
    differences: tuple[str, ...]
    gaps: int
    cycles: int
    memory_mb: dict[str, Growth]
    disk_mb: dict[str, Growth]


class _Samples:
    """Of one quantity, by site."""

    def __init__(self, directory: Path, sites: LiveSites) -> None:
        self._directory = directory
        self._sites = sites
        self._begun = time.monotonic()
        self._at: list[float] = []
        self._memory: dict[str, list[float]] = {site: [] for site in SITES}
        self._disk: dict[str, list[float]] = {site: [] for site in SITES}

    async def take(self) -> None:
        self._at.append(time.monotonic() - self._begun)
        for site in SITES:
            processes = self._sites.cluster.processes(site)
            self._memory[site].append(await asyncio.to_thread(memory, processes))
            self._disk[site].append(await asyncio.to_thread(disk, self._directory / site))

    def last(self) -> str:
        of_memory, of_disk = (sum(v[-1] for v in each.values()) for each in (self._memory, self._disk))
        return f"memory {of_memory:,.0f} MB, disk {of_disk:,.0f} MB"

    def growth(self) -> tuple[dict[str, Growth], dict[str, Growth]]:
        memory, disk = (self._growth(each) for each in (self._memory, self._disk))
        return memory, disk

    def _growth(self, values: dict[str, list[float]]) -> dict[str, Growth]:
        of_all = [sum(each) for each in zip(*values.values(), strict=True)]
        return {name: growth(self._at, each) for name, each in (values | {"all": of_all}).items()}


def query() -> Graph:
    """What is busy, and where the busy see a slow network: the worst latency of each in ten seconds."""
    q = Query("soak")
    load = q.source("load", "host string, load double")
    rtt = q.source("rtt", "host string, ms double")
    busy = load.where("load > 0.5", name="busy")
    slow = busy.join(rtt, on="host", within="500 ms", where="ms > 0.5", name="slow")
    worst = slow.aggregate("10 s", every="2 s", by="host", n="count(*)", worst="max(ms)", name="worst")
    q.output("busy", busy)
    q.output("worst", worst)
    return q.graph


async def soak(
    minutes: float, rate: float, seed: int, directory: Path, spark: Spark | None, say: Callable[[str], None]
) -> Soak:
    """``rate``: tuples a second, of both sources together."""
    graph, topology = query(), world(SITES)
    applications = tuple(Subscription(f"{output.name}@{NEAR}", output.name, NEAR) for output in graph.outputs)
    plan = copies(graph, ENTRIES, COPIES, applications)
    settings = Settings(punctuation_interval=500_000)
    rates = {source.name: rate / len(graph.sources) for source in graph.sources}
    differences: list[Difference] = []
    done: list[tuple[float, str]] = []
    async with (
        LiveSites(graph, topology, plan, directory, spark, settings, say) as sites,
        Endless(sites, rates, seed, KEYS) as endless,
    ):
        await endless.until(now(), PATIENCE)
        samples = _Samples(directory, sites)
        begun = time.time()
        faults = [
            Kill(CYCLING, minute * MINUTE + DOWN[0], minute * MINUTE + DOWN[1])
            for minute in range(int(minutes))
        ]
        cycling = asyncio.create_task(sites.befall(faults, begun, done))
        try:
            while (past := time.time() - begun) < minutes * MINUTE:
                await asyncio.sleep(min(SAMPLE, minutes * MINUTE - past))
                await samples.take()
                differences += endless.check()
                say(
                    f"{past / MINUTE:.1f} min: {endless.auditor.compared:,} tuples compared, {samples.last()}"
                )
            await cycling
        finally:
            cycling.cancel()
        differences += await endless.end(PATIENCE)
    of_memory, of_disk = samples.growth()
    return Soak(
        minutes,
        rate,
        endless.sent,
        endless.auditor.compared,
        not differences and not endless.gaps and endless.auditor.compared > 0,
        tuple(str(difference) for difference in differences[:10]),
        len(endless.gaps),
        len(done) // 2,
        of_memory,
        of_disk,
    )
