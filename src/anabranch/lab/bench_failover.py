"""How long an application waits when the site whose results come first is killed, beside plain Spark that is
killed and started again.

Two sites run the same query, a third is where tuples enter and the application is. Every process of the site
whose branch brings most tuples first gets SIGKILL; later it comes back. Then plain Spark has its turn, on an
otherwise idle machine: its driver, Java and workers get SIGKILL, its logs and its checkpoint stay, and a
supervisor starts it again at once. A silence is the time between two deliveries; the longest counts, from
the kill until the site or Spark is started again and well on its way.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from anabranch.lab.bench_live import (
    SECOND,
    Application,
    Feed,
    application_of,
    batch_times,
    near_each_other,
    now_us,
    plan_of,
    run,
    silences,
)
from anabranch.lab.live import engines_ready
from anabranch.lab.plain_spark import PlainSpark
from anabranch.lab.queries import stateless
from anabranch.site.cluster import Cluster
from anabranch.site.config import Spark
from anabranch.site.subscription import Receiver

ENTRY, COPIES = "entry", ("left", "right")
PATIENCE = 180.0


class Times(msgspec.Struct, frozen=True):
    """Seconds. ``warm``: tuples flow before anything is measured. ``calm``: measured before a kill; ``down``:
    the site stays away."""

    warm: float = 20.0
    calm: float = 6.0
    down: float = 6.0


class Killed(msgspec.Struct, frozen=True):
    """Seconds of silence, and between deliveries before (median and longest). ``back``: the longest silence
    while the site was starting again, on the processors of the others."""

    silence: float
    interval: float
    interval_most: float
    back: float = 0.0
    site: str = ""


class Outcome(msgspec.Struct, frozen=True):
    """``batch``: seconds that a micro-batch took. ``missing``, ``repeated``: tuples, of those that were
    sent."""

    rounds: tuple[Killed, ...]
    batch: float
    missing: int
    repeated: int


def measure(
    rounds: int = 3,
    rate: float = 200.0,
    times: Times = Times(),  # noqa: B008 - frozen
    spark: Spark = Spark(),  # noqa: B008 - frozen
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="anabranch-") as directory:
        ours = run(_anabranch(Path(directory), rounds, rate, times, spark))
    with tempfile.TemporaryDirectory(prefix="anabranch-") as directory:
        plain = run(_plain(Path(directory), rounds, rate, times, spark))
    return report(ours, plain)


def report(ours: Outcome, plain: Outcome) -> dict[str, Any]:
    silence = _median([each.silence for each in ours.rounds])
    theirs = _median([each.silence for each in plain.rounds])
    worst = max(each.silence for each in ours.rounds)
    normal = _median([each.interval for each in ours.rounds])
    return {
        "plain_spark_silence_s": theirs,
        "plain_spark_silence_worst_s": max(each.silence for each in plain.rounds),
        "anabranch_silence_s": silence,
        "anabranch_silence_worst_s": worst,
        "ratio": round(theirs / silence, 1),
        "ratio_worst": round(min(each.silence for each in plain.rounds) / worst, 1),
        "normal_interval_s": normal,
        "normal_interval_most_s": max(each.interval_most for each in ours.rounds),
        "batch_s": ours.batch,
        "batches_above_normal": round((silence - normal) / ours.batch, 2),
        "batches_above_normal_worst": round(
            max((each.silence - each.interval) / ours.batch for each in ours.rounds), 2
        ),
        "silence_while_it_comes_back_s": max(each.back for each in ours.rounds),
        "plain_spark_batch_s": plain.batch,
        "plain_spark_normal_interval_s": _median([each.interval for each in plain.rounds]),
        "killed": [each.site for each in ours.rounds],
        "missing": ours.missing,
        "repeated": ours.repeated,
        "plain_spark_missing": plain.missing,
        "plain_spark_repeated": plain.repeated,
    }


def _median(values: list[float]) -> float:
    return round(float(np.median(values)), 3)


async def _anabranch(directory: Path, rounds: int, rate: float, times: Times, spark: Spark) -> Outcome:
    graph = stateless()
    sites = (ENTRY, *COPIES)
    plan = plan_of(graph, [ENTRY], COPIES, ENTRY)
    async with contextlib.AsyncExitStack() as stack:
        cluster = Cluster(graph, near_each_other(sites), plan, directory, spark=spark)
        await stack.enter_async_context(cluster)
        await engines_ready(cluster)
        receiver, application = application_of(cluster)
        stack.push_async_callback(application.close)
        producer = cluster.producer("load")
        producer.start()
        stack.push_async_callback(producer.abandon)
        feed = Feed(producer.send, rate)
        await _flows(receiver, COPIES)
        await asyncio.sleep(times.warm)
        since = now_us()
        killed = []
        for _ in range(rounds):
            before = receiver.first_arrivals
            await asyncio.sleep(times.calm)
            firsts = receiver.first_arrivals
            site = max(COPIES, key=lambda copy: firsts.get(copy, 0) - before.get(copy, 0))
            at = now_us()
            await asyncio.to_thread(cluster.kill_site, site)
            await asyncio.sleep(times.down)
            back = now_us()
            cluster.start(site)
            await cluster.ready()
            await engines_ready(cluster)
            await _flows(receiver, [site])
            await asyncio.sleep(times.calm)
            killed.append(_round(application, times, at, back, site))
        return await _outcome(
            application, feed, tuple(killed), _batch_s([directory / s / "agent.jsonl" for s in COPIES], since)
        )


async def _flows(receiver: Receiver, copies: Any) -> None:
    """Until each of these brings something first again."""
    async with asyncio.timeout(PATIENCE):
        before = receiver.received
        while any(receiver.received.get(copy, 0) <= before.get(copy, 0) for copy in copies):
            await asyncio.sleep(0.05)


async def _plain(directory: Path, rounds: int, rate: float, times: Times, spark: Spark) -> Outcome:
    async with PlainSpark("stateless", directory, spark) as plain:
        application = plain.application()
        try:
            feed = Feed(lambda rows, _: plain.send("load", rows), rate)
            await application.until(1, PATIENCE)
            await asyncio.sleep(times.warm)
            killed = []
            for _ in range(rounds):
                await asyncio.sleep(times.calm)
                at = now_us()
                plain.kill()
                await asyncio.sleep(0.2)
                await application.until(application.received + 1, PATIENCE)
                await asyncio.sleep(times.calm)
                killed.append(_round(application, times, at, now_us()))
            return await _outcome(application, feed, tuple(killed), _plain_batch_s(plain.progress))
        finally:
            await application.close()


def _round(application: Application, times: Times, at: int, back: int, site: str = "") -> Killed:
    came = application.times()
    pauses = silences(came, at - int(times.calm * SECOND), at)
    # The last one is that of the kill; if there is no other, deliveries are farther apart than it was calm.
    normal = pauses[:-1] if len(pauses) > 1 else pauses
    return Killed(
        round(float(silences(came, at, back).max()) / SECOND, 3),
        round(float(np.median(normal)) / SECOND, 3),
        round(float(normal.max()) / SECOND, 3),
        round(float(silences(came, back, now_us()).max()) / SECOND, 3),
        site,
    )


async def _outcome(application: Application, feed: Feed, rounds: tuple[Killed, ...], batch: float) -> Outcome:
    await feed.stop()
    with contextlib.suppress(TimeoutError):
        await application.until(feed.sent, 30.0)
    await asyncio.sleep(1.0)
    numbers = np.concatenate([arrival.rows.column("load").to_numpy() / 2 for arrival in application.arrivals])
    missing = feed.sent - len(np.unique(numbers))
    return Outcome(rounds, batch, missing, len(numbers) - len(np.unique(numbers)))


def _batch_s(journals: list[Path], since: int) -> float:
    lines = [line for path in journals for line in path.read_bytes().splitlines()]
    return round(batch_times(lines, since)["median"] / 1e3, 3)


def _plain_batch_s(progress: Path) -> float:
    told = [msgspec.json.decode(line) for line in progress.read_bytes().splitlines()]
    took = [each["durationMs"]["triggerExecution"] for each in told if each["numInputRows"]]
    return round(float(np.median(took[len(took) // 4 :])) / 1e3, 3)
