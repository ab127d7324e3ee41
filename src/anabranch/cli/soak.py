"""``anabranch bench soak``: the directory, the report and the exit status."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Literal

import msgspec
from rich.console import Console
from rich.table import Table

from anabranch.cli.options import print_json
from anabranch.lab.soak import Soak, soak
from anabranch.site.config import Spark


def show(minutes: int, rate: int, seed: int, engine: Literal["spark", "arrow"], json: bool) -> int:
    """The exit status: 0 if the applications received exactly the ideal run."""
    spark = Spark() if engine == "spark" else None
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="anabranch-soak-") as directory:
        result = asyncio.run(soak(minutes, rate, seed, Path(directory), spark, console.print))
    if json:
        print_json(msgspec.to_builtins(result))
    else:
        _print(Console(), result)
    return 0 if result.exact else 1


def _print(console: Console, result: Soak) -> None:
    for title, measures in (("Memory, MB", result.memory_mb), ("Disk, MB", result.disk_mb)):
        table = Table(title=title, title_justify="left")
        table.add_column("")
        for heading in ("first third", "last third", "a minute"):
            table.add_column(heading, justify="right")
        for site, each in measures.items():
            table.add_row(site, f"{each.first:,.1f}", f"{each.last:,.1f}", f"{each.slope_per_minute:+,.2f}")
        console.print(table)
    verdict = "exact" if result.exact else "NOT exact"
    console.print(
        f"{result.entered:,} tuples entered, {result.cycles} times a site went down and came back; "
        f"{result.audited:,} tuples of the ideal run were compared: {verdict}"
    )
    for difference in result.differences:
        console.print(difference, style="red")
