"""Streaming sources of Spark's as entry points' sources, at two sites, while agents, drivers and sites are
killed: equal tuples with equal ids, none lost, none twice."""

import asyncio
import contextlib
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet
import pytest
from embedded import NOON, SECOND, run
from test_attached import PAIR, identified, received_rows, shared_plan, shared_query
from test_partitions import alone_plan, partitions, take, take_count
from test_partitions import identified as identified_apart
from topic import append

import anabranch as ab
from anabranch.site.cluster import Cluster
from anabranch.site.sources.settings import FromSpark
from anabranch.streams.batch import Batch, ints

pytestmark = pytest.mark.slow
PATIENCE = 420


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites find the modules beside this one."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


async def kill_driver(cluster: Cluster, site: str) -> None:
    """SIGKILL to Spark's driver, its Java and its workers; the agent starts another."""
    agent = psutil.Process(cluster.pid(site, "agent"))
    while not agent.children(recursive=True):
        await asyncio.sleep(0.1)
    for child in agent.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


def rows_of(part: Batch, first: int, end: int) -> list[dict[str, Any]]:
    piece = part.slice(first, end - first)
    columns = zip(ints(piece.column(0)).tolist(), *(c.to_pylist() for c in piece.columns[1:]), strict=True)
    return [{"time": ts, "host": host, "load": load} for ts, host, load in columns]


async def some(cluster: Cluster, site: str, more: int = 1) -> None:
    """Until Spark has handed over a few batches more."""
    path = cluster.directory / site / "sources" / "load.json"
    for _ in range(more):
        before = path.stat().st_mtime_ns if path.exists() else 0
        while not path.exists() or path.stat().st_mtime_ns == before:
            await asyncio.sleep(0.05)


def test_partitions_that_run_side_by_side(tmp_path: Path) -> None:
    query, parts = shared_query("200 ms"), partitions(7, 600)
    topic = tmp_path / "topic"
    topic.mkdir()

    def feed(first: int, end: int) -> None:
        for name, rows in parts.items():
            append(topic, int(name), rows_of(rows, first, end))

    source = FromSpark(
        "load",
        "topic:Topic",
        {"directory": str(topic)},
        select=("partition", "offset", "timestamp_micros(time) as at", "host", "load"),
        id=("partition", "offset"),
        partitions=len(parts),
        timestamp="at",
    )

    async def work() -> None:
        feed(0, 100)
        plan = shared_plan(query)
        async with Cluster(query, PAIR, plan, tmp_path, sources=(source,)) as cluster:
            wanted = identified_apart(parts)
            names = ("alerts@paris", "of paris", "of tokyo")
            taking = [asyncio.create_task(take(cluster.receiver(n), wanted.total())) for n in names]
            await asyncio.gather(some(cluster, "paris"), some(cluster, "tokyo"))
            feed(100, 200)
            cluster.kill("paris", "agent")
            await kill_driver(cluster, "tokyo")
            feed(200, 300)
            await asyncio.gather(some(cluster, "paris"), some(cluster, "tokyo"))
            await asyncio.to_thread(cluster.kill_site, "tokyo")
            shutil.rmtree(tmp_path / "tokyo" / "checkpoints")
            cluster.start("tokyo")
            feed(300, 400)
            await some(cluster, "tokyo", 2)
            await asyncio.to_thread(cluster.kill_site, "paris", lose_log=True)
            cluster.start("paris")
            feed(400, 600)
            assert [received_rows(await task) for task in taking] == [wanted] * 3

    run(work(), PATIENCE)


def files_query() -> ab.Query:
    q = ab.Query("shared")
    columns = "host string, load double"
    load = q.source("load", columns, identity="partition", lateness="200 ms")
    more = q.source("more", columns, identity="partition")
    q.output("alerts", load.where("load > 0.5", name="busy"))
    q.output("lines", more.where("load > 0.5", name="busy2"))
    return q


def test_files_with_their_names_and_rows(tmp_path: Path) -> None:
    """Parquet, which numbers its rows, and JSON, whose rows are numbered as they are read."""
    query, directories = files_query(), {name: tmp_path / name for name in ("load", "more")}
    for directory in directories.values():
        directory.mkdir()
    rng = np.random.default_rng(8)
    files = {}
    for number in range(6):
        ts = NOON + number * SECOND + rng.integers(-SECOND, SECOND // 2, 80)
        files[f"{number:03}"] = pa.table(
            {
                "ts": pa.array(ts).cast(pa.timestamp("us", "UTC")),
                "host": [f"h{i % 5}" for i in range(80)],
                "load": rng.random(80),
            }
        )

    def put(name: str) -> None:
        table = files[name]
        pa.parquet.write_table(table, directories["load"] / f".{name}.parquet")
        (directories["load"] / f".{name}.parquet").rename(directories["load"] / f"{name}.parquet")
        rows = rows_of(table.combine_chunks().to_batches()[0], 0, table.num_rows)
        (directories["more"] / f".{name}").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (directories["more"] / f".{name}").rename(directories["more"] / f"{name}.json")

    sources = (
        FromSpark(
            "load",
            "parquet",
            {"path": str(directories["load"])},
            "ts timestamp, host string, load double",
            ("_metadata.file_name as file", "_metadata.row_index as row", "ts", "host", "load"),
            ("file", "row"),
        ),
        FromSpark(
            "more",
            "json",
            {"path": str(directories["more"]), "maxFilesPerTrigger": "1"},
            "time bigint, host string, load double",
            ("_metadata.file_name as file", "timestamp_micros(time) as ts", "host", "load"),
            ("file",),
        ),
    )

    async def work() -> None:
        subscriptions = tuple(
            ab.Subscription(f"{output}@{site}", output, site)
            for output in ("alerts", "lines")
            for site in ("paris", "tokyo")
        )
        both = ("paris", "tokyo")
        plan = ab.full_mesh(
            query.graph, {"load": both, "more": both}, {"busy": both, "busy2": both}, subscriptions
        )
        # What each site has read alone.
        alone = tuple(b for b in plan.branches if b.source == b.target.rpartition("@")[2])
        plan = msgspec.structs.replace(plan, branches=alone)
        wanted = {
            "alerts": wanted_of(files, ".parquet", "load", 200_000),
            "lines": wanted_of(files, ".json", "more", 0),
        }
        async with Cluster(query, PAIR, plan, tmp_path, sources=sources) as cluster:
            taking = {
                s.name: asyncio.create_task(take_count(cluster.receiver(s.name), wanted[s.output].total()))
                for s in subscriptions
            }
            put("000")
            await asyncio.gather(some(cluster, "paris"), some(cluster, "tokyo"))
            put("001")
            cluster.kill("paris", "agent")
            await kill_driver(cluster, "tokyo")
            put("002")
            await asyncio.gather(some(cluster, "paris"), some(cluster, "tokyo"))
            for name in ("003", "004", "005"):
                put(name)
            for subscription in subscriptions:
                got = received_rows(await taking[subscription.name])
                assert got == wanted[subscription.output], subscription

    run(work(), PATIENCE)


def wanted_of(
    files: dict[str, pa.Table], suffix: str, source: str, lateness: int
) -> Counter[tuple[Any, ...]]:
    named = {f"{name}{suffix}": table for name, table in files.items()}
    return identified(named, lateness, "partition", source)


def alone() -> ab.Query:
    q = ab.Query("alone")
    rows = q.source("load", "value bigint", lateness="1 second")
    q.output("alerts", rows.where("value >= 0", name="busy"))
    return q


def test_rows_without_identity_are_read_by_one_site(tmp_path: Path) -> None:
    query = alone()
    source = FromSpark(
        "load",
        "rate-micro-batch",
        {"rowsPerBatch": "7", "numPartitions": "3", "startTimestamp": "1700000000000"},
        select=("timestamp as ts", "value"),
    )

    async def work() -> None:
        plan = alone_plan(query)
        async with Cluster(query, PAIR, plan, tmp_path, sources=(source,)) as cluster:
            got: list[int] = []

            async def receive() -> None:
                async with cluster.receiver("alerts@paris") as receiver:
                    async for rows in receiver:
                        got.extend(rows.column(3).to_pylist())

            async def more() -> None:
                before = len(got)
                while len(got) < before + 50:
                    await asyncio.sleep(0.1)

            receiving = asyncio.create_task(receive())
            await more()
            cluster.kill("paris", "agent")
            await more()
            await kill_driver(cluster, "paris")
            await more()
            await asyncio.to_thread(cluster.kill_site, "paris")
            cluster.start("paris")
            await more()
            await asyncio.to_thread(cluster.kill_site, "paris")
            shutil.rmtree(tmp_path / "paris" / "checkpoints")
            cluster.start("paris")
            while "nobody knows which of them have been read" not in journal(tmp_path / "paris"):
                await asyncio.sleep(0.2)
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
            # Each once, and all from the first on.
            assert sorted(got) == list(range(len(got)))
        assert not (tmp_path / "tokyo" / "spark").exists()

    run(work(), PATIENCE)


def journal(directory: Path) -> str:
    return (directory / "agent.jsonl").read_text()
