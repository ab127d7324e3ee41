"""The live demonstration: the query of the paper's Figure 1 on four sites of this machine, each with its own
log and Spark driver, and real inter-continental delays between them. One copy of the query is killed, later
the other one is cut off; the results flow on, and the audit compares them with the ideal run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.graph import Graph
from anabranch.lab.audit import Audit, audit
from anabranch.lab.demo import query, readings
from anabranch.lab.live import Inputs, LiveRun, LiveSites, Stage
from anabranch.lab.live_faults import CutOff, Kill
from anabranch.lab.places import world
from anabranch.plan import Plan, Subscription, copies
from anabranch.protocols.settings import Settings
from anabranch.site.config import Spark
from anabranch.streams.batch import Batch
from anabranch.topology import Topology

APPLICATION = "oncall"
NEAR = "dublin"
SITES = ("dublin", "frankfurt", "singapore", "virginia")
COPIES = ("frankfurt", "virginia")
KILLED, CUT_OFF = COPIES
ENTRIES = {
    "load_west": ("dublin", "singapore"),
    "load_east": ("singapore", "dublin"),
    "rtt_west": ("dublin", "singapore"),
    "rtt_east": ("singapore", "dublin"),
}
PATIENCE = 60.0


class Scene(msgspec.Struct, frozen=True):
    """``seconds`` of readings."""

    graph: Graph
    topology: Topology
    plan: Plan
    seconds: int
    seed: int

    def inputs(self, begin: int) -> Inputs:
        rng = np.random.default_rng(self.seed)
        return {name: readings(rng, name, self.seconds, begin) for name in ENTRIES}

    async def script(self, stage: Stage) -> None:
        """Once both copies are at work, one is killed; once it has caught up again, the other one is cut off.
        A machine on which that takes too long sees both all the same."""
        lasts = 0.12 * self.seconds
        await stage.abreast(latest=0.35 * self.seconds)
        kill = stage.now()
        await stage.befall(Kill(KILLED, round(kill, 1), round(kill + lasts, 1)))
        await stage.abreast(latest=0.8 * self.seconds)
        cut = stage.now()
        await stage.befall(CutOff(CUT_OFF, round(cut, 1), round(cut + lasts, 1)))


class Outcome(msgspec.Struct, frozen=True):
    """``warm``: seconds from the first tuple to the first result, while Spark compiled its first batches;
    silences and latencies are those after it."""

    scene: Scene
    run: LiveRun
    audit: Audit
    warm: float


def scenario(seconds: int, seed: int = 1) -> Scene:
    graph, topology = query().graph, world(SITES)
    plan = copies(graph, ENTRIES, COPIES, (Subscription(APPLICATION, "alerts", NEAR),))
    return Scene(graph, topology, plan, seconds, seed)


async def play(
    scene: Scene,
    directory: Path,
    say: Callable[[str], None],
    heard: Callable[[str, Batch, int], None] = lambda application, rows, now: None,
    spark: Spark | None = Spark(),  # noqa: B008 - frozen
) -> Outcome:
    settings = Settings(punctuation_interval=500_000)
    async with LiveSites(scene.graph, scene.topology, scene.plan, directory, spark, settings, say) as sites:
        run = await sites.play(scene.inputs, scene.script, PATIENCE, heard)
    verdict = audit(scene.graph, run.inputs, scene.plan, run, since=_first(run))[APPLICATION]
    return Outcome(scene, run, verdict, round((_first(run) - run.begun) / 1e6, 1))


def _first(run: LiveRun) -> int:
    """When the first result was delivered."""
    delivered = run.deliveries[APPLICATION].column("delivered").cast(pa.int64())
    return int(delivered[0].as_py()) if len(delivered) else run.begun


def report(outcome: Outcome) -> dict[str, Any]:
    """What ``anabranch demo --json`` prints."""
    verdict, run, scene = outcome.audit, outcome.run, outcome.scene
    return {
        "audit": {name: getattr(verdict, name) for name in ("delivered", "missing", "extra", "exact")},
        "faults": [{"at_s": at, "what": what} for at, what in run.done],
        "silence_s": verdict.silence_s,
        "latency_ms": {"alerts": verdict.latency_ms},
        "first_arrivals": run.first_arrivals[APPLICATION],
        "sites": scene.topology.names,
        "copies": COPIES,
        "up_s": run.up_s,
        "first_result_s": round(run.up_s + outcome.warm, 1),
        "seconds": scene.seconds,
    }
