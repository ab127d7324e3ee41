"""A file as a source, replayed at a pace: each row at its time.

A life that begins again sends the same rows with the same numbers: those that were safe count once.
"""

from __future__ import annotations

import time
from pathlib import Path

from anabranch.input_tables import column_types, conform
from anabranch.inputs import read_table
from anabranch.site.config import Deployment
from anabranch.site.journal import Journal
from anabranch.site.producer import Producer
from anabranch.site.replay import Pace, Replay, first_arrival
from anabranch.site.sources.settings import Replayed


async def replay(settings: Replayed, deployment: Deployment, memory: Path, journal: Journal) -> None:
    """Until all is safe: the source has ended then. ``memory``: a file for when it began, so that a later
    life goes on where this one was."""
    source = next(each for each in deployment.graph.sources if each.name == settings.source)
    table = conform(source, read_table(Path(settings.path), column_types(source)), settings.path)
    pace = Pace(
        first_arrival(source, table) or 0, settings.speed, time.monotonic() - (time.time() - _began(memory))
    )
    replaying = Replay(source, table, pace)
    producer = Producer(deployment, settings.source, arrived=replaying.arrived, journal=journal)
    async with producer:
        await replaying.feed(producer)


def _began(memory: Path) -> float:
    try:
        return float(memory.read_text("utf-8"))
    except (OSError, ValueError):
        now = time.time()
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_text(repr(now), "utf-8")
        return now
