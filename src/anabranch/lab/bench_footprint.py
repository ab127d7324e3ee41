"""What four sites with Spark take on one machine: memory, and processor time while nothing arrives and while
a little does.

Each site runs the whole query, a window, so each has a Spark driver of its own. First tuples
come at a rate; then the producer is there and sends none, which it promises every second; then it is gone.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from anabranch.lab.bench_live import Feed, application_of, near_each_other, plan_of, processes, run
from anabranch.lab.live import engines_ready
from anabranch.lab.processes import Meter, count, memory
from anabranch.lab.queries import aggregate
from anabranch.site.cluster import Cluster
from anabranch.site.config import Spark

PATIENCE = 180.0


def measure(
    sites: int = 4,
    rate: float = 100.0,
    seconds: float = 30.0,
    settle: float = 10.0,
    warm: float = 60.0,
    spark: Spark | None = Spark(),  # noqa: B008 - frozen
) -> dict[str, Any]:
    """Each phase is measured over ``seconds`` after it has had ``settle`` seconds, the first after ``warm``
    more: four Javas that have just begun are busy with themselves."""
    with tempfile.TemporaryDirectory(prefix="anabranch-") as directory:
        return run(_measure(sites, rate, seconds, settle, warm, Path(directory), spark))


async def _measure(
    sites: int,
    rate: float,
    seconds: float,
    settle: float,
    warm: float,
    directory: Path,
    spark: Spark | None,
) -> dict[str, Any]:
    names = [f"site{number}" for number in range(1, sites + 1)]
    graph = aggregate()
    plan = plan_of(graph, names[:2], names, names[0])
    async with Cluster(graph, near_each_other(names), plan, directory, spark=spark) as cluster:
        if spark is not None:
            await engines_ready(cluster)
        _, application = application_of(cluster)
        producer = cluster.producer("load")
        producer.start()
        try:
            feed = Feed(producer.send, rate)
            await application.until(1, PATIENCE)
            await asyncio.sleep(warm)

            async def phase() -> dict[str, float]:
                await asyncio.sleep(settle)
                meter = Meter(processes(cluster))
                await asyncio.sleep(seconds)
                return _cores(meter.spent(processes(cluster)), seconds)

            busy = await phase()
            await feed.stop()
            promising = await phase()
        finally:
            await producer.abandon()
        try:
            rest = await phase()
            everything = processes(cluster)
            taken, number = memory(everything), count(everything)
        finally:
            await application.close()
    return {
        "sites": sites,
        "pss_gb": round(sum(taken.values()) / 1e9, 2),
        "pss_mb": {kind: round(bytes_ / 1e6) for kind, bytes_ in sorted(taken.items())},
        "processes": dict(sorted(number.items())),
        "rest_cores": _sum(rest),
        "rest_cores_by_kind": rest,
        "promising_cores": _sum(promising),
        "promising_cores_by_kind": promising,
        "rate": rate,
        "busy_cores": _sum(busy),
        "busy_cores_by_kind": busy,
    }


def _cores(seconds: dict[str, float], over: float) -> dict[str, float]:
    return {kind: round(spent / over, 3) for kind, spent in sorted(seconds.items())}


def _sum(cores: dict[str, float]) -> float:
    return round(sum(cores.values()), 3)
