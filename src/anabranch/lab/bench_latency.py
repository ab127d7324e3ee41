"""How long a tuple takes from its producer to the application, through Spark, and where the time goes.

First one site does it all: entry point, query, and the application beside it. Its agent adds up how old
tuples are where they pass (:mod:`anabranch.site.ages`), so the mean times of the stages add up to the mean
of the whole. Spark's own stages are from its reports: a tuple waits for the batch before its own, which for
tuples that come evenly is half of the mean square of a batch's length over its mean.

Then the query runs on two sites that are far away, and so is the application: what is above the delay of the
fastest path is what Anabranch adds.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from anabranch.lab.bench_live import (
    Feed,
    application_of,
    batch_times,
    near_each_other,
    now_us,
    plan_of,
    run,
)
from anabranch.lab.live import engines_ready
from anabranch.lab.places import world
from anabranch.lab.queries import stateless
from anabranch.site.cluster import Cluster
from anabranch.site.config import Spark
from anabranch.site.wan import Wan
from anabranch.streams.batch import Ints
from anabranch.topology import Topology

ALONE = "site"
ENTRY, COPIES, NEAR = "virginia", ("dublin", "saopaulo"), "frankfurt"
PATIENCE = 180.0
_SAMPLE = re.compile(r'^(\w+){stream="([^"]*)".*} (\S+)$', re.MULTILINE)

Counters = dict[tuple[str, str], float]
"""By name and stream."""


def measure(
    rate: float = 1_000.0,
    seconds: float = 30.0,
    warm: float = 25.0,
    spark: Spark = Spark(),  # noqa: B008 - frozen
    wan: bool = True,
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="anabranch-") as directory:
        alone = run(_alone(Path(directory), rate, seconds, warm, spark))
    if not wan:
        return alone
    with tempfile.TemporaryDirectory(prefix="anabranch-") as directory:
        return {**alone, "wan": run(_far(Path(directory), rate, seconds, warm, spark))}


async def _alone(directory: Path, rate: float, seconds: float, warm: float, spark: Spark) -> dict[str, Any]:
    graph = stateless()
    plan = plan_of(graph, [ALONE], [ALONE], ALONE)
    cluster = Cluster(graph, near_each_other([ALONE]), plan, directory, spark=spark)
    async with cluster:
        port = (await cluster.status(ALONE)).metrics_port
        counted: list[Counters] = []

        async def count() -> None:
            counted.append(await asyncio.to_thread(counters, port))

        begun, waited = await _flow(cluster, rate, seconds, warm, count)
        lines = (directory / ALONE / "agent.jsonl").read_bytes().splitlines()
        batches = batch_times(lines, begun)
    before, after = counted
    return {
        "rows_s": rate,
        **percentiles(waited),
        "mean_ms": round(float(waited.mean()) / 1e3, 1),
        "stages": stages(before, after, batches, float(waited.mean())),
        "batch_ms": {name: round(took, 1) for name, took in batches.items() if name != "square"},
    }


async def _far(directory: Path, rate: float, seconds: float, warm: float, spark: Spark) -> dict[str, Any]:
    graph, topology = stateless(), world((ENTRY, *COPIES, NEAR))
    plan = plan_of(graph, [ENTRY], COPIES, NEAR)
    wan = Wan(topology)
    cluster = Cluster(graph, topology, plan, directory, resolve=wan.address, spark=spark)
    async with contextlib.AsyncExitStack() as stack:
        await wan.start({site: cluster.server_of(site, site) for site in topology.names})
        stack.push_async_callback(wan.close)
        await stack.enter_async_context(cluster)
        _, waited = await _flow(cluster, rate, seconds, warm, _nothing)
    path = fastest_path(topology)
    return {
        "fastest_path_ms": path,
        **percentiles(waited),
        **{f"{name}_above": round(each - path, 1) for name, each in percentiles(waited).items()},
    }


async def _nothing() -> None:
    pass


def fastest_path(topology: Topology) -> float:
    """Milliseconds from the entry point over whichever copy to the application."""
    delays = [topology.delay_at(ENTRY, copy, 0) + topology.delay_at(copy, NEAR, 0) for copy in COPIES]
    return min(delays) / 1e3


async def _flow(cluster: Cluster, rate: float, seconds: float, warm: float, count: Any) -> tuple[int, Ints]:
    """``count`` is called before and after what is measured. When that began, and how long each tuple has
    waited, in microseconds."""
    async with contextlib.AsyncExitStack() as stack:
        await engines_ready(cluster)
        _, application = application_of(cluster)
        stack.push_async_callback(application.close)
        producer = cluster.producer("load")
        producer.start()
        stack.push_async_callback(producer.abandon)
        feed = Feed(producer.send, rate)
        await application.until(1, PATIENCE)
        await asyncio.sleep(warm)
        await count()
        begun = now_us()
        await asyncio.sleep(seconds)
        until = now_us()
        await count()
        await feed.stop()
        await application.until(feed.sent, PATIENCE)
        if application.received != feed.sent:
            raise RuntimeError(f"{feed.sent} tuples were sent and {application.received} have come")
        return begun, application.waited(begun, until)


def counters(port: int) -> Counters:
    """What a site counts by stream."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
        text = page.read().decode()
    return {
        (name.removeprefix("anabranch_").removesuffix("_total"), stream): float(value)
        for name, stream, value in _SAMPLE.findall(text)
    }


def stages(before: Counters, after: Counters, batches: dict[str, float], whole: float) -> dict[str, float]:
    """Mean milliseconds of each stage; ``whole``: microseconds to the application."""

    def age(what: str, rows: str, stream: str) -> float:
        spent, count = (after[name, stream] - before.get((name, stream), 0.0) for name in (what, rows))
        return spent / max(count, 1.0)

    entry, entered = (age(what, "log_rows", "out/load") for what in ("log_age_asked_us", "log_age_us"))
    link = age("branch_age_us", "branch_rows", "load")
    filtered, logged = (age(what, "log_rows", "in/load") for what in ("log_age_asked_us", "log_age_us"))
    ran = age("engine_out_age_us", "engine_out_rows", "made")
    committed, out = (age(what, "log_rows", "out/made") for what in ("log_age_asked_us", "log_age_us"))
    cycle = batches["triggerExecution"]
    waits = batches["square"] / (2 * cycle) * 1e3
    plans = sum(batches.get(name, 0.0) for name in ("walCommit", "getBatch", "queryPlanning"))
    took = {
        "entry": entry,
        "entry_log": entered - entry,
        "link": link - entered,
        "filter": filtered - link,
        "log": logged - filtered,
        "spark_batch_before": waits,
        "spark_planning": plans * 1e3,
        "spark_run": ran - logged - waits - plans * 1e3,
        "commit": committed - ran,
        "out_log": out - committed,
        "delivery": whole - out,
    }
    return {name: round(each / 1e3, 1) for name, each in took.items()}


def percentiles(waited: Ints) -> dict[str, float]:
    p50, p99 = np.percentile(waited, (50, 99)) / 1e3
    return {"p50_ms": round(float(p50), 1), "p99_ms": round(float(p99), 1)}
