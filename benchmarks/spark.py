"""From the ingress log through Spark to the agent: how long a tuple takes, a stage at a time. Prints JSON.

    python benchmarks/spark.py --rate 1000 --seconds 20

A real log server, a real driver process, and an agent that answers at once; two fragments at a time: a
filter, and a window of a second.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "engines" / "spark"))

from one_site import Site

import anabranch as ab
from anabranch.engines.spark.run import Progress
from anabranch.streams.batch import assemble, timestamps, with_ids

SCHEMA = with_ids(pa.schema({"key": pa.int64(), "load": pa.float64()}))
WARM = 60
"""Batches after which Spark has compiled what it will."""
RECORD = 0.02
"""Seconds between two records of the ingress log."""


def query(kind: str) -> ab.Query:
    q = ab.Query("bench")
    load = q.source("load", "key bigint, load double")
    if kind == "stateless":
        q.output("out", load.where("load >= 0", name="out_"))
    else:
        q.output("out", load.aggregate("1 second", by="key", n="count(*)", name="out_"))
    return q


def measure(kind: str, rate: int, seconds: float) -> dict[str, Any]:
    graph = query(kind).graph
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as directory:
        site = Site(graph, graph.order(), graph.order(), Path(directory))
        arrived: list[tuple[np.ndarray, np.ndarray]] = []
        take = site.collector._deliver

        def deliver(done: Any, deliveries: Any) -> None:
            now = time.time_ns() // 1_000
            times = [timestamps(rows) for _, rows, _ in deliveries if rows is not None]
            arrived.extend((ts, now - ts) for ts in times)
            take(done, deliveries)

        site.collector._deliver = deliver
        try:
            started = time.monotonic()
            site.start_driver()
            ready = time.monotonic()
            site.start_fragment()
            fed = 0
            while len(site.delivered) < WARM:
                fed += _feed(site, rate, fed, 1.0)
            _feed(site, rate, fed, 4.0)
            begin = time.time_ns() // 1_000
            _feed(site, rate, fed + 10 * rate, seconds)
            time.sleep(3)
            assert site.driver is not None
            progress = site.driver.progress()[-int(seconds) :]
        finally:
            site.close()
    ms = np.concatenate([late[ts >= begin] for ts, late in arrived]) / 1_000
    return {
        "kind": kind,
        "rows_s": rate,
        "session_s": round(ready - started, 1),
        "rows": len(ms),
        "p50_ms": round(float(np.percentile(ms, 50)), 1),
        "p99_ms": round(float(np.percentile(ms, 99)), 1),
        "batch_ms": _stages(progress),
        "dropped": sum(event.dropped for event in progress),
    }


def _feed(site: Site, rate: int, first: int, seconds: float) -> int:
    """Tuples stamped with the time at which they are appended; each record promises what lies before it. How
    many they were."""
    begin, sent = time.time(), 0
    while (now := time.time()) < begin + seconds:
        count = int((now - begin) * rate) - sent
        if count:
            number = np.arange(first + sent, first + sent + count, dtype=np.int64)
            ts = np.full(count, int(now * 1e6), np.int64)
            columns = [pa.array(number % 50), pa.array(number / 7)]
            site.logs["load"].append(assemble(ts, number, number, columns, SCHEMA), int(now * 1e6) - 1)
            sent += count
        time.sleep(RECORD)
    return sent


def _stages(progress: list[Progress]) -> dict[str, float]:
    names = progress[-1].durations
    return {
        name: round(float(np.median([d for event in progress for d in event.durations.get(name, [])])), 1)
        for name in names
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    for kind in ("stateless", "window"):
        print(json.dumps(measure(kind, options.rate, options.seconds)), flush=True)


if __name__ == "__main__":
    main()
