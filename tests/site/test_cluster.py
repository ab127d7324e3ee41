"""The guarantee on real processes: whatever is killed, cut off or set wrong while the query runs, every
application receives the ideal run."""

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from embedded import NOON, Relay, assert_ideal, loads, run

import anabranch as ab
from anabranch.log.server import ServerSettings
from anabranch.site.cluster import Cluster
from anabranch.site.config import SiteConfig

NAMES = ("paris", "tokyo", "ohio")
SITES = ab.Topology.from_rtt([[0, 20, 10], [20, 0, 15], [10, 15, 0]], NAMES)
SECONDS = 5
CUT = [("ohio", "paris"), ("tokyo", "paris"), ("ohio", "tokyo"), ("paris", "tokyo")]


def query() -> ab.Query:
    q = ab.Query("watch")
    load = q.source("load", "host string, load double")
    rtt = q.source("rtt", "host string, load double")
    busy = load.where("load > 0.3", name="busy")
    pairs = busy.join(rtt, on="host", within="500 ms", where="right_load > 0.3", name="pairs")
    worst = pairs.aggregate("2 seconds", every="1 second", by="host", n="count(*)", name="worst")
    q.output("alerts", worst)
    q.output("pairs", pairs, order="timestamp")
    return q


def plan(epoch: int = 1, pairs: tuple[str, ...] = ("paris", "tokyo")) -> ab.Plan:
    return ab.full_mesh(
        query().graph,
        {"load": ("paris", "tokyo"), "rtt": ("tokyo", "paris")},
        {"busy": ("paris", "tokyo"), "pairs": pairs, "worst": ("tokyo", "paris")},
        (ab.Subscription("alerts@ohio", "alerts", "ohio"), ab.Subscription("pairs@ohio", "pairs", "ohio")),
        epoch=epoch,
        coordinator="paris",
    )


def inputs() -> dict[str, pa.Table]:
    return {"load": loads(60 * SECONDS, SECONDS, 1), "rtt": loads(60 * SECONDS, SECONDS, 2)}


Trouble = Callable[[Cluster], Awaitable[None]]


async def processes_die(cluster: Cluster) -> None:
    cluster.kill("paris", "agent")
    cluster.set_clock("tokyo", -30)
    await asyncio.sleep(1.5)
    cluster.kill("tokyo", "nats")
    cluster.set_clock("tokyo", 30)


async def a_site_goes_and_comes_back(cluster: Cluster) -> None:
    await asyncio.to_thread(cluster.kill_site, "paris")
    await asyncio.sleep(1.5)
    cluster.start("paris")


async def a_site_loses_its_log(cluster: Cluster) -> None:
    await asyncio.to_thread(cluster.kill_site, "paris", lose_log=True)
    await asyncio.sleep(0.5)
    cluster.start("paris")


async def a_plan_comes(cluster: Cluster) -> None:
    await cluster.install(plan(2, ("tokyo", "ohio")))


@pytest.mark.parametrize(
    "trouble", [processes_die, a_site_goes_and_comes_back, a_site_loses_its_log, a_plan_comes]
)
def test_what_arrives_is_the_ideal_run_whatever_happens(trouble: Trouble, tmp_path: Path) -> None:
    async def work() -> None:
        async with Cluster(query(), SITES, plan(), tmp_path) as cluster:
            collecting = asyncio.create_task(cluster.collect())
            feeding = asyncio.create_task(cluster.feed(inputs()))
            await asyncio.sleep(2)
            await trouble(cluster)
            await feeding
            assert_ideal(query(), inputs(), await collecting, plan())

    run(work())


def test_links_that_are_cut_again_and_again_cost_nothing(tmp_path: Path) -> None:
    """Every connection between sites, and from applications to sites, leads through a relay."""

    async def work() -> None:
        relays: dict[tuple[str, str], Relay] = {}

        def resolve(a: str, b: str) -> tuple[str, int]:
            return "127.0.0.1", relays[a, b].port

        cluster = Cluster(query(), SITES, plan(), tmp_path, resolve=resolve)
        async with asyncio.TaskGroup() as group, AsyncRelays(cluster, relays), cluster:
            collecting = group.create_task(cluster.collect())
            feeding = group.create_task(cluster.feed(inputs()))
            for pair in CUT * 2:
                await asyncio.sleep(0.5)
                relays[pair].cut()
            await feeding
            assert_ideal(query(), inputs(), await collecting, plan())
        lines = {pair: relay.accepted for pair, relay in relays.items()}
        assert all(lines[pair] > 2 for pair in CUT), lines

    run(work())


class AsyncRelays:
    """One relay for each directed pair of sites."""

    def __init__(self, cluster: Cluster, relays: dict[tuple[str, str], Relay]) -> None:
        self._stack = contextlib.AsyncExitStack()
        self._cluster = cluster
        self._relays = relays

    async def __aenter__(self) -> None:
        for a in NAMES:
            for b in NAMES:
                if a != b:
                    relay = Relay(self._cluster.ports[b])
                    self._relays[a, b] = await self._stack.enter_async_context(relay.running())

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()


def test_nothing_is_left_behind_when_the_caller_fails(tmp_path: Path) -> None:
    async def work() -> None:
        async with Cluster(query(), SITES, plan(), tmp_path):
            raise RuntimeError("the caller has a bug")

    with pytest.raises(RuntimeError, match="the caller has a bug"):
        run(work())
    left = [p for p in psutil.Process().children(recursive=True) if str(tmp_path) in " ".join(p.cmdline())]
    assert not left


def test_a_site_that_cannot_run_gives_up_aloud(tmp_path: Path) -> None:
    """Its server cannot: somebody else has the port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        config = SiteConfig(
            "paris",
            tmp_path,
            query().graph,
            plan(),
            dict.fromkeys(NAMES, f"nats://127.0.0.1:{port}"),
            NOON,
            log=ServerSettings("paris", tmp_path / "log", port=port),
        )
        path = tmp_path / "site.json"
        path.write_bytes(config.to_json())
        done = subprocess.run(
            [sys.executable, "-m", "anabranch.site.process", str(path)],
            capture_output=True,
            text=True,
            timeout=80,
            check=False,
        )
    assert done.returncode == 1
    assert "nats has ended 8 times within a minute" in done.stderr
