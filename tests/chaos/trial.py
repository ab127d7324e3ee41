"""One query on four live sites, broken again and again; after each round the application's output must be the
ideal run's, and then all sites must come to be well."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec
from scenes import SITES, Scene
from schedule import Round

from anabranch.lab.auditor import Difference
from anabranch.lab.endless import Endless, Stuck, now
from anabranch.lab.live import LiveSites
from anabranch.protocols.settings import Settings
from anabranch.site.config import Spark

PATIENCE = 400.0
"""Seconds, of a machine that others use too: how long Spark takes to start there is not what is tested."""
UNLAWFUL = ("Gap", "Trimmed", "Disagreement", "Late", "Poisoned", "Rejected")
"""Events that nothing in a schedule accounts for."""
BROKEN = (
    "failed",
    "given up",
    "branch failed",
    "engine dropped rows",
    "driver refused",
    "driver not understood",
)
WORTH_COUNTING = ("driver ended", "engine failed", "life ended", "ended", *UNLAWFUL, "Degraded")
FAILURES = Path("chaos-failures")


class Survived(msgspec.Struct, frozen=True):
    """A round: seconds from the end of the last fault until the application had everything up to then, and
    until all sites were well. ``compared``: tuples. ``told``: what journals told meanwhile, counted."""

    kinds: tuple[str, ...]
    received_s: float
    well_s: float
    compared: int
    told: dict[str, int]


class Failure(AssertionError):
    """Says what was wrong, after which faults, where the logs are and how to repeat it."""


async def run(
    scene: Scene, rounds: list[Round], seed: int, directory: Path, spark: Spark | None
) -> list[Survived]:
    settings = Settings(punctuation_interval=500_000)
    survived: list[Survived] = []
    played: list[Round] = []
    done: list[tuple[float, str]] = []
    try:
        async with (
            LiveSites(scene.graph, scene.topology, scene.plan, directory, spark, settings) as sites,
            Endless(sites, scene.rates, seed) as endless,
        ):
            journals = Journals(directory)
            await endless.until(now(), PATIENCE)
            await endless.whole(now(), PATIENCE)
            same(endless.check())
            for round in rounds:
                played.append(round)
                begun = time.time()
                await sites.befall([f for trouble in round for f in trouble.faults], begun, done)
                over = now()
                before = endless.auditor.compared
                await endless.until(over, PATIENCE)
                same(endless.check())
                received = now()
                await endless.whole(over, PATIENCE)
                told = journals.read()
                assert not told.keys() & {*UNLAWFUL, *BROKEN}, f"journals tell of {told}"
                survived.append(
                    Survived(
                        tuple(trouble.kind for trouble in round),
                        round_off(received - over),
                        round_off(now() - over),
                        endless.auditor.compared - before,
                        dict(told),
                    )
                )
                print(msgspec.json.encode(survived[-1]).decode(), file=sys.stderr, flush=True)
            same(await endless.end(PATIENCE))
            assert not endless.gaps, endless.gaps
            assert endless.auditor.compared > 0
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
            raise
        raise Failure(told_of(scene, seed, sum(map(len, rounds)), played, done, directory, error)) from error
    return survived


def same(differences: list[Difference]) -> None:
    assert not differences, "; ".join(map(str, differences))


def round_off(microseconds: int) -> float:
    return round(microseconds / 1e6, 1)


class Journals:
    """What the sites' processes have told since this was last asked."""

    def __init__(self, directory: Path) -> None:
        self._files = [directory / site / name for site in SITES for name in ("agent.jsonl", "site.jsonl")]
        self._read: dict[Path, int] = {}
        self.read()

    def read(self) -> Counter[str]:
        told: Counter[str] = Counter()
        for path in self._files:
            with path.open(encoding="utf-8") as lines:
                lines.seek(self._read.get(path, 0))
                whole = lines.read().rpartition("\n")[0]
            self._read[path] = self._read.get(path, 0) + len(whole.encode()) + bool(whole)
            for line in whole.splitlines():
                what = json.loads(line)["what"]
                if what in WORTH_COUNTING or what in BROKEN:
                    told[what] += 1
        return told


def told_of(
    scene: Scene,
    seed: int,
    count: int,
    played: list[Round],
    done: list[tuple[float, str]],
    directory: Path,
    error: BaseException,
) -> str:
    kept = FAILURES / f"{scene.name}-{seed}-{int(time.time())}"
    with contextlib.suppress(shutil.Error):  # what vanishes meanwhile was no log
        shutil.copytree(directory, kept, dirs_exist_ok=True)
    faults = [msgspec.to_builtins(fault) for round in played for trouble in round for fault in trouble.faults]
    (kept / "schedule.json").write_bytes(msgspec.json.format(msgspec.json.encode(faults)))
    (kept / "done.json").write_bytes(msgspec.json.format(msgspec.json.encode(done)))
    lines = [
        f"{scene.name}, seed {seed}: {_inner(error)}",
        *(f"  {words}" for _, words in done),
        f"what the sites have left: {kept.resolve()}",
        f"again: ANABRANCH_CHAOS={count} ANABRANCH_CHAOS_SEED={seed} "
        f".venv/bin/pytest tests/chaos -k {scene.name}",
    ]
    return "\n".join(lines)


def _inner(error: BaseException) -> str:
    """What a group of failures is about."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = str(error) if isinstance(error, AssertionError | Stuck) else repr(error)
    return text[:4000]
