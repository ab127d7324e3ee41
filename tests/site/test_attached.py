"""What sites fetch and deliver themselves: the same tuples everywhere, each result once, whatever dies."""

import asyncio
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from embedded import NOON, SECOND, Sites, assert_ideal, busy_query, loads, rows_of, run, take_all
from http_client import PLAN, lines

import anabranch as ab
from anabranch.plan import Plan
from anabranch.site.cluster import Cluster
from anabranch.site.config import ConfigError, SiteConfig
from anabranch.site.intake import Intake
from anabranch.site.producer import Producer
from anabranch.site.sinks import parquet
from anabranch.site.sinks.console import show
from anabranch.site.sinks.settings import Parquet
from anabranch.site.sources.files import LAST, Directory
from anabranch.site.sources.settings import Files, Replayed
from anabranch.site.subscription import Receiver
from anabranch.streams.batch import ints
from anabranch.streams.hashing import source_ids
from anabranch.streams.lateness import promises

PAIR = ab.Topology.from_rtt([[0, 1], [1, 0]], ("paris", "tokyo"))


def shared_query(lateness: str | None = None) -> ab.Query:
    q = ab.Query("shared")
    load = q.source("load", "host string, load double", identity="partition", lateness=lateness)
    q.output("alerts", load.where("load > 0.5", name="busy"))
    return q


def shared_plan(query: ab.Query) -> Plan:
    """An application that hears both sites, and one for each that hears it alone."""
    names = ("alerts@paris", "of paris", "of tokyo")
    plan = ab.full_mesh(
        query.graph,
        {"load": ("paris", "tokyo")},
        {"busy": ("paris", "tokyo")},
        tuple(ab.Subscription(name, "alerts", "paris") for name in names),
    )
    alone = {"of paris": "paris", "of tokyo": "tokyo"}
    branches = tuple(b for b in plan.branches if alone.get(b.target, b.source) == b.source)
    return msgspec.structs.replace(plan, branches=branches)


def put(directory: Path, name: str, table: pa.Table) -> None:
    """A file that appears whole."""
    new = directory / f".{name}"
    if name.endswith(".parquet"):
        pa.parquet.write_table(table, new)
    elif name.endswith(".csv"):
        text = table.set_column(0, "ts", table["ts"].cast(pa.int64()))
        pa.csv.write_csv(text, new)
    else:
        new.write_bytes(lines(table))
    new.rename(directory / name)


def identified(
    files: dict[str, pa.Table], lateness: int, kind: str = "file", source: str = "load"
) -> Counter[tuple[Any, ...]]:
    """What the rule says: busy rows in time, by the order of all files, with the ids of file and row."""
    promised, found = -(2**62), Counter[tuple[Any, ...]]()
    for name in sorted(files):
        table = files[name].combine_chunks()
        ts = ints(table["ts"].chunk(0))
        allowed = promises(ts, lateness, promised)
        hi, lo = source_ids(source, f"{kind} {name}", 0, len(ts))
        rows = zip(
            ts.tolist(),
            hi.tolist(),
            lo.tolist(),
            *(table[c].to_pylist() for c in ("host", "load")),
            strict=True,
        )
        found.update(
            row for row, low in zip(rows, allowed.tolist(), strict=False) if row[0] > low and row[4] > 0.5
        )
        promised = int(allowed[-1])
    return found


def received_rows(batches: list[Any]) -> Counter[tuple[Any, ...]]:
    return Counter(
        row
        for batch in batches
        for row in zip(
            ints(batch.column(0)).tolist(), *(batch.column(i).to_pylist() for i in range(1, 5)), strict=True
        )
    )


def test_sites_that_read_the_same_files_decide_alike(tmp_path: Path) -> None:
    """Though one begins when the other is nearly through, and rows are late within files and across them."""
    query, rng = shared_query("200 ms"), np.random.default_rng(3)
    files = {}
    for number, suffix in enumerate(("csv", "parquet", "ndjson", "parquet", "csv", "jsonl")):
        table = loads(150, 1.5, number)
        ts = ints(table["ts"].chunk(0)) + number * SECOND + rng.integers(-SECOND, SECOND // 2, 150)
        files[f"{number:03}.{suffix}"] = table.set_column(0, "ts", pa.array(ts).cast(table["ts"].type))
    directory = tmp_path / "files"
    directory.mkdir()

    async def work() -> None:
        async with Sites(query.graph, shared_plan(query), ("paris", "tokyo"), tmp_path) as running:
            names = ("alerts@paris", "of paris", "of tokyo")
            receiving = [
                asyncio.create_task(take_all(Receiver(running.deployment(), name))) for name in names
            ]

            async def read(site: str) -> None:
                intake = Intake(running.deployment(), f"files@{site}", running.journals[site])
                source = query.graph.sources[0]
                settings = Files("load", str(directory), 0.02)
                try:
                    memory = tmp_path / f"{site}.json"
                    await Directory(settings, source, site, intake, memory, running.journals[site]).run()
                finally:
                    await intake.close()

            first = asyncio.create_task(read("paris"))
            for name, table in files.items():
                put(directory, name, table)
                await asyncio.sleep(0.05)
            while running.journals["paris"].total("files_read") < 4:
                await asyncio.sleep(0.02)
            second = asyncio.create_task(read("tokyo"))
            while running.journals["tokyo"].total("files_read") < 4:
                await asyncio.sleep(0.02)
            # It comes behind its turn, and is left out.
            put(directory, "000-behind.csv", loads(5, 1))
            (directory / "notes.txt").touch()
            (directory / LAST).touch()
            await asyncio.gather(first, second)
            wanted = identified(files, 200_000)
            got = [received_rows(await task) for task in receiving]
            assert 0 < wanted.total() < sum(table.num_rows for table in files.values()) / 2
            assert got == [wanted, wanted, wanted]
            lates = {
                site: running.journals[site].counts["events", (("event", "Late"),)] for site in running.names
            }
            assert lates["paris"] == lates["tokyo"] > 0
            for site in running.names:
                assert running.journals[site].counts["events", (("event", "Degraded"),)] == 0

    run(work())


def test_files_in_and_files_out_while_sites_are_killed(tmp_path: Path) -> None:
    query = shared_query()
    table = loads(900, 9, 7)
    source, sink = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    fetched = Files("load", str(source), 0.05)
    delivered = Parquet("alerts@paris", str(sink), every=0.3, rows=50)

    async def work() -> None:
        plan = shared_plan(query)
        async with Cluster(query, PAIR, plan, tmp_path, sources=(fetched,), sinks=(delivered,)) as cluster:
            for number in range(9):
                put(source, f"{number}.parquet", table.slice(100 * number, 100))
                await asyncio.sleep(0.4)
                while number == 2 and not list(sink.glob("*.parquet")):
                    await asyncio.sleep(0.1)
                if number == 2:
                    cluster.kill("paris", "agent")
                if number == 5:
                    await asyncio.to_thread(cluster.kill_site, "tokyo", lose_log=True)
                    cluster.start("tokyo")
                if number == 7:
                    cluster.kill("paris", "agent")
            (source / LAST).touch()
            while not (sink / parquet.LAST).exists():
                await asyncio.sleep(0.1)
        files = sorted(sink.glob("*.parquet"))
        assert len(files) > 1
        got = pa.concat_tables([pa.parquet.read_table(path) for path in files])
        wanted = ab.ideal(query, {"load": table})["alerts"].drop_columns(["_hi", "_lo"])
        assert rows_of(got.select(wanted.column_names)) == rows_of(wanted)
        assert got["ts"].to_pylist() == sorted(got["ts"].to_pylist())

    run(work(), 120)


def test_a_replay_goes_on_where_it_was(tmp_path: Path) -> None:
    table = loads(300, 3, 12)
    path = tmp_path / "load.ndjson"
    path.write_bytes(lines(table))

    async def work() -> None:
        plan = msgspec.structs.replace(
            PLAN,
            entries={"load": ("paris",)},
            branches=tuple(b for b in PLAN.branches if b.stream != "load" or b.source == "paris"),
        )
        replayed = (Replayed("load", str(path)),)
        async with Cluster(busy_query(), PAIR, plan, tmp_path, sources=replayed) as cluster:
            receiving = asyncio.create_task(take_all(cluster.receiver("alerts@paris")))
            await asyncio.sleep(1)
            cluster.kill("paris", "agent")
            assert_ideal(busy_query(), {"load": table}, {"alerts@paris": await receiving}, plan)

    run(work(), 60)


def test_the_console_shows_each_tuple_once(tmp_path: Path) -> None:
    table = loads(100, 1, 13)

    async def work() -> None:
        async with Sites(busy_query().graph, PLAN, ("paris", "tokyo"), tmp_path) as running:
            shown = io.StringIO()
            showing = asyncio.create_task(show(Receiver(running.deployment(), "alerts@paris"), shown))
            async with Producer(running.deployment(), "load", arrived=lambda: NOON) as producer:
                await producer.send(table)
            await showing
            loads_shown = Counter(json.loads(line)["load"] for line in shown.getvalue().splitlines())
            assert loads_shown == Counter(x for x in table["load"].to_pylist() if x > 0.5)

    run(work())


def test_two_writers_do_not_share_a_directory(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()

    async def work() -> None:
        with parquet._alone(tmp_path), pytest.raises(parquet.DirectoryTaken, match="another writer"):
            await parquet.write(lambda after: pytest.fail("it began"), tmp_path)

    run(work())


def test_what_cannot_be_attached_is_told_before_anything_runs(tmp_path: Path) -> None:
    graph = busy_query().graph
    urls = dict.fromkeys(("paris", "tokyo"), "nats://127.0.0.1:1")
    path = tmp_path / "site.json"
    for parts, says in (
        ({"sources": (Files("lood", "x"),)}, "no source 'lood'; the query has load"),
        ({"sinks": (Parquet("nobody", "x"),)}, "no application 'nobody'; it has alerts@paris"),
    ):
        path.write_bytes(SiteConfig("paris", tmp_path, graph, PLAN, urls, 1, **parts).to_json())
        with pytest.raises(ConfigError, match=says):
            SiteConfig.load(path)
    with pytest.raises(ConfigError, match='identity="partition"'):
        Directory(Files("load", "x"), graph.sources[0], "paris", None, path, None)  # type: ignore[arg-type]
