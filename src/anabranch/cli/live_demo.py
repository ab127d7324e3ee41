"""``anabranch demo`` on real sites: the directory, the screen and the exit status."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Literal

from rich.console import Console

from anabranch.cli.options import print_json
from anabranch.lab import live_demo as lab
from anabranch.lab import live_screen as screen
from anabranch.site.config import Spark


def show(seconds: int, seed: int, engine: Literal["spark", "arrow"], json: bool) -> int:
    """The exit status: 0 if the application received exactly the ideal run."""
    scene = lab.scenario(seconds, seed)
    spark = Spark() if engine == "spark" else None
    console = Console(stderr=json)
    with tempfile.TemporaryDirectory(prefix="anabranch-demo-") as directory:
        screen.introduce(console, scene)
        narrator = screen.Narrator(console)
        outcome = asyncio.run(lab.play(scene, Path(directory), narrator.say, narrator.heard, spark))
    if json:
        print_json(lab.report(outcome))
    else:
        screen.conclude(console, outcome)
    return 0 if outcome.audit.exact else 1
