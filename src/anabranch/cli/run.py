"""``anabranch run``: a user's query on real sites, all of them on this machine, audited at the end."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa

from anabranch.cli.run_screen import Screen
from anabranch.cli.simulate import Job as Simulated
from anabranch.cli.simulate import prepare as prepare_simulation
from anabranch.engines.ideal import ideal
from anabranch.lab.audit import longest_silence
from anabranch.lab.compare import compare
from anabranch.log.connection import FAILURES
from anabranch.site import ndjson
from anabranch.site.cluster import Cluster, ClusterError
from anabranch.site.config import ConfigError, check_parts
from anabranch.site.http.view import new_name, viewing
from anabranch.site.places import LiveSites
from anabranch.site.status import SiteStatus
from anabranch.site.subscription import Receiver
from anabranch.site.wan import Wan
from anabranch.streams.batch import TS, Batch, ints
from anabranch.topology import Topology
from anabranch.types import arrow_schema

_LOOK = 0.5
_PATIENCE = 180.0


class Job(msgspec.Struct, frozen=True):
    """``directory`` None: one that is gone when all went well. ``secure``: with certificates and permissions,
    as between hosts. ``live``: what the sites file says of live sites; None: nothing."""

    task: Simulated
    live: LiveSites | None
    directory: Path | None
    speed: float
    secure: bool


class Audit(msgspec.Struct, frozen=True):
    """``expected`` None: the sites have given the timestamps, or fetched the tuples themselves, so no file
    tells what should have come. ``silence_s``: the longest time between two deliveries."""

    output: str
    delivered: int
    expected: int | None
    missing: int
    extra: int
    in_order: bool
    silence_s: float

    @property
    def exact(self) -> bool:
        return self.in_order and not self.missing and not self.extra


class Result(msgspec.Struct, frozen=True):
    audits: dict[str, Audit]
    sites: dict[str, SiteStatus | None]
    seconds: float

    @property
    def exact(self) -> bool:
        return all(audit.exact for audit in self.audits.values())


def prepare(
    query: Path,
    sites: Path,
    inputs: Sequence[str],
    plan: Path | None,
    k: int | None,
    directory: Path | None,
    speed: float,
    secure: bool,
) -> Job:
    """Reads and checks everything; whatever is wrong is a sentence that names its place."""
    live = LiveSites.load(sites) if sites.suffix == ".toml" else None
    task = prepare_simulation(query, sites, inputs, plan, None, k, 0, _fetched(live))
    if directory is not None and directory.exists() and any(directory.iterdir()):
        raise ConfigError(f"{directory}: is not empty, and a run begins with empty logs; name another one")
    if live is not None:
        every = [(live.sources, live.sinks), *((p.sources, p.sinks) for p in live.places.values())]
        for sources, sinks in every:
            check_parts(task.graph, task.plan, sources, sinks, str(sites))
    return Job(task, live, directory, speed, secure)


def _fetched(live: LiveSites | None) -> set[str]:
    """The sources that sites fetch themselves."""
    if live is None:
        return set()
    own = (source for place in live.places.values() for source in place.sources)
    return {each.source for each in (*live.sources, *own)}


async def play(job: Job, screen: Screen) -> Result:
    """From empty logs to the end of the inputs. Whatever happens, no process is left behind."""
    directory = job.directory or Path(tempfile.mkdtemp(prefix="anabranch-"))
    directory.mkdir(parents=True, exist_ok=True)
    task, live = job.task, job.live
    wan = Wan(task.topology)
    names = task.topology.names if live is not None else ()
    cluster = Cluster(
        task.graph,
        task.topology,
        task.plan,
        directory,
        resolve=wan.address,
        spark={} if live is None else {name: live.places[name].spark for name in names},
        secure=job.secure,
        sources={} if live is None else {name: live.sources_of(name, task.plan) for name in names},
        sinks={} if live is None else {name: live.sinks_of(name, task.plan) for name in names},
        driver={} if live is None else {name: live.places[name].driver for name in names},
    )
    write_sites(directory / "sites.toml", task.topology, cluster, job.secure)
    begun = time.monotonic()
    try:
        await wan.start({site: cluster.server_of(site, site) for site in task.topology.names})
        seen = asyncio.create_task(_greet(job, cluster, screen))
        async with cluster:
            await seen
            received = await _run(job, cluster, screen)
            sites = await _statuses(cluster)
    except asyncio.CancelledError:
        _forget(job, directory)
        raise
    finally:
        screen.close()
        await wan.close()
    _forget(job, directory)
    audits = _audits(task, received)
    return Result(audits, sites, round(time.monotonic() - begun, 3))


def _forget(job: Job, directory: Path) -> None:
    if job.directory is None:
        shutil.rmtree(directory, ignore_errors=True)


async def _greet(job: Job, cluster: Cluster, screen: Screen) -> None:
    """Tells the screen of each site as it comes up, its engine too."""

    until = time.monotonic() + _PATIENCE
    computing = {site for sites in job.task.plan.replicas.values() for site in sites}

    async def one(site: str) -> None:
        while time.monotonic() < until:
            with contextlib.suppress(*FAILURES):
                status = await cluster.status(site)
                if status.driver or site not in computing or not _on_spark(job, site):
                    screen.up(site)
                    return
            await asyncio.sleep(_LOOK / 5)
        raise ClusterError(f"site {site!r} does not come up; look at {cluster.directory / site}")

    screen.starting(cluster.topology.names, cluster.directory)
    await asyncio.gather(*(one(site) for site in cluster.topology.names))


def _on_spark(job: Job, site: str) -> bool:
    return job.live is not None and job.live.places[site].spark is not None


Received = dict[str, list[tuple[int, Batch]]]
"""Of each application: what came, and when, in microseconds."""


async def _run(job: Job, cluster: Cluster, screen: Screen) -> Received:
    received: Received = {s.name: [] for s in job.task.plan.subscriptions}

    async def take(name: str) -> None:
        async with _receiver(job, cluster, name) as receiver:
            async for rows in receiver:
                received[name].append((time.time_ns() // 1000, rows))
                screen.rows(name, ndjson.rows(rows))

    ended = asyncio.Event()

    async def look() -> None:
        while not ended.is_set():
            screen.status(await _statuses(cluster))
            await asyncio.sleep(_LOOK)

    looking = asyncio.create_task(look())
    try:
        async with asyncio.TaskGroup() as working:
            for name in received:
                working.create_task(take(name))
            working.create_task(cluster.feed(job.task.inputs, job.speed))
        while not _delivered(await _statuses(cluster)):
            await asyncio.sleep(_LOOK)
    finally:
        ended.set()
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
    return received


def _receiver(job: Job, cluster: Cluster, name: str) -> Receiver:
    """The application; or, where that is a site's own sink, one that reads beside it."""
    live, plan = job.live, job.task.plan
    sinks = {} if live is None else {site: live.sinks_of(site, plan) for site in live.places}
    if name not in {sink.application for each in sinks.values() for sink in each}:
        return cluster.receiver(name)
    subscription = next(s for s in plan.subscriptions if s.name == name)
    output = next(o for o in job.task.graph.outputs if o.name == subscription.output)
    beside = new_name(subscription.site)
    view = viewing(beside, output.name, output.stream, subscription.site)
    return Receiver(cluster.deployment(subscription.site), beside, cluster.journal, view=view)


def _delivered(sites: Mapping[str, SiteStatus | None]) -> bool:
    """Whether what the sites deliver themselves is where it goes."""
    return not any(
        status is None or any(name.startswith("sink ") for name in status.attached)
        for status in sites.values()
    )


async def _statuses(cluster: Cluster) -> dict[str, SiteStatus | None]:
    async def one(site: str) -> SiteStatus | None:
        try:
            return await cluster.status(site)
        except FAILURES:
            return None

    names = cluster.topology.names
    return dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))


def _audits(task: Simulated, received: Received) -> dict[str, Audit]:
    sources = task.graph.sources
    known = all(source.timestamps == "source" and source.name in task.inputs for source in sources)
    expected = ideal(task.graph, task.inputs) if known else {}
    outputs = {output.name: output for output in task.graph.outputs}
    audits = {}
    for subscription in task.plan.subscriptions:
        output = outputs[subscription.output]
        came = received[subscription.name]
        got = table([rows for _, rows in came], arrow_schema(task.graph.schema(output.stream)))
        wanted = expected.get(output.name)
        missing, extra = ([], []) if wanted is None else compare(wanted, got)
        ts = got.column("ts").cast(pa.int64()).to_pylist()
        audits[subscription.name] = Audit(
            output.name,
            got.num_rows,
            None if wanted is None else wanted.num_rows,
            len(missing),
            len(extra),
            output.order is None or ts == sorted(ts),
            longest_silence(ints(pa.array([at for at, _ in came], pa.int64()))),
        )
    return audits


def table(batches: Sequence[Batch], columns: pa.Schema) -> pa.Table:
    """Rows without their ids: ``ts`` and the columns."""
    schema = pa.schema([pa.field("ts", pa.timestamp("us", "UTC")), *columns])
    parts = [rows.select([TS, *columns.names]).rename_columns(schema.names) for rows in batches]
    return pa.Table.from_batches(parts, schema) if parts else schema.empty_table()


def write_sites(path: Path, topology: Topology, cluster: Cluster, secure: bool) -> None:
    """Where the sites really are, for the other commands."""
    lines = []
    for line in topology.to_toml().splitlines():
        lines.append(line)
        if line.startswith("[sites."):
            lines.append(f"port = {cluster.ports[line[len('[sites.') : -1]]}")
    path.write_text(
        "\n".join([*lines, "[live]", 'directory = "."', *(['security = "keys"'] if secure else [])])
    )
