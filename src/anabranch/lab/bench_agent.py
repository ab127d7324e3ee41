"""What one agent takes in: branches read, duplicates filtered, the rest logged and run through a fragment.

The logs of the sources are written beforehand; the agent runs in this process, the servers in theirs. Rates
count distinct tuples, by seconds of this process's own processor time and by seconds on the clock.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import pstats
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from anabranch.graph import Graph
from anabranch.log.connection import Access
from anabranch.log.server import Server, ServerSettings
from anabranch.log.store import SiteLog
from anabranch.plan import Plan, Subscription, full_mesh
from anabranch.protocols.records import Writer
from anabranch.protocols.settings import Settings
from anabranch.query import Query
from anabranch.site.agent import SiteAgent
from anabranch.site.cluster import free_ports
from anabranch.site.config import Schemas, SiteConfig
from anabranch.site.journal import Journal
from anabranch.streams.batch import assemble
from anabranch.streams.hashing import source_ids
from anabranch.streams.punctuation import BEGINNING, END

SOURCES = ("a", "c")
NOON = 1_760_000_400_000_000


def query() -> Graph:
    q = Query("bench")
    load = q.source("load", "host string, load double")
    q.output("alerts", load.where("load > 0.9", name="busy"))
    return q.graph


def plan(graph: Graph, branches: int) -> Plan:
    return full_mesh(
        graph, {"load": SOURCES[:branches]}, {"busy": ("b",)}, (Subscription("app", "alerts", "b"),)
    )


def measure(rows: int, batch: int, branches: int, profile: bool = False) -> dict[str, Any]:
    """``rows`` tuples in records of ``batch``, each over as many ``branches``."""
    with tempfile.TemporaryDirectory(prefix="anabranch-") as directory:
        names = ("b", *SOURCES[:branches])
        servers = {
            name: Server(ServerSettings(name, Path(directory) / name / "log", port=port), bound=True)
            for name, port in zip(names, free_ports(len(names)), strict=True)
        }
        try:
            for server in servers.values():
                server.start()
            return asyncio.run(_measure(servers, Path(directory), rows, batch, branches, profile))
        finally:
            for server in servers.values():
                server.stop()


async def _measure(
    servers: dict[str, Server], directory: Path, rows: int, batch: int, branches: int, profile: bool
) -> dict[str, Any]:
    graph = query()
    for name in SOURCES[:branches]:
        await _write(graph, servers[name].url, name, rows, batch)
    urls = {name: server.url for name, server in servers.items()}
    config = SiteConfig("b", directory / "b", graph, plan(graph, branches), urls, 600_000_000, Settings())
    journal = Journal(directory / "b" / "agent.jsonl")
    agent = SiteAgent(config, journal)
    own = servers["b"].process
    assert own is not None
    log = psutil.Process(own.pid)
    before = _spent(log)
    profiler = cProfile.Profile()
    if profile:
        profiler.enable()
    wall, cpu = time.perf_counter(), time.process_time()
    running = asyncio.create_task(agent.run())
    while not _done(agent):
        await asyncio.sleep(0.005)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if profile:
        profiler.disable()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    appends = journal.counts["log_records", (("stream", "in/load"),)]
    server = _spent(log) - before
    taken_in = journal.counts["log_rows", (("stream", "in/load"),)]
    if taken_in != rows:
        raise RuntimeError(f"the agent took in {taken_in} tuples of {rows}: what was measured is no agent")
    agent.stop()
    await running
    journal.close()
    return {
        "rows": rows,
        "batch": batch,
        "branches": branches,
        "rows_s_core": round(rows / cpu),
        "rows_s": round(rows / wall),
        "agent_cpu_s": round(cpu, 3),
        "log_server_cpu_s": round(server, 3),
        "appends": appends,
    }


def _done(agent: SiteAgent) -> bool:
    life = agent.life
    if life is None or "busy" not in life.agent.egresses:
        return False
    return life.agent.egresses["busy"].durable == END


def _spent(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def _write(graph: Graph, url: str, site: str, rows: int, batch: int) -> None:
    """The log of an entry point that has had it all."""
    schemas = Schemas(graph)
    schema = schemas.rows("load")
    failures: list[BaseException] = []
    log = SiteLog(
        Access(url), "bench", site, schemas.of_log, lambda _: None, lambda *_: None, failures.append
    )
    writer = Writer("out/load", 1)
    writer.complete_from = BEGINNING
    rng = np.random.default_rng(1)
    hosts = pa.array([f"host-{i:03d}" for i in range(200)])
    for first in range(0, rows, batch):
        count = min(batch, rows - first)
        ts = NOON + np.arange(first, first + count) * 10
        columns = [hosts.take(pa.array(rng.integers(0, 200, count))), pa.array(rng.random(count))]
        record = assemble(ts, *source_ids("load", "load", first, count), columns, schema)
        writer.punctuation = NOON + (first - 1) * 10
        log.do(writer.append(record))
        while log.waiting > 500 and not failures:
            await asyncio.sleep(0.005)
    writer.punctuation = END
    log.do(writer.append(None))
    while log.waiting and not failures:
        await asyncio.sleep(0.005)
    await log.close()
    if failures:
        raise failures[0]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batches", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--profile", action="store_true")
    chosen = parser.parse_args(arguments)
    measure(20_000, 1000, 1)  # compiled kernels are loaded
    results = [
        measure(min(chosen.rows, 2_000 * batch), batch, branches, chosen.profile)
        for branches in (1, 2)
        for batch in chosen.batches
    ]
    print(json.dumps(results, indent=1))
