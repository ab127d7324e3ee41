"""Options that several commands have."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

Json = Annotated[bool, typer.Option("--json", help="Report in one JSON object, the last line of the output.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")]
QueryFile = Annotated[
    Path, typer.Argument(help="A Python file that defines the query as `q`.", metavar="QUERY.py")
]
SitesFile = Annotated[Path, typer.Argument(help="The sites.", metavar="SITES.toml")]
Inputs = Annotated[
    list[str],
    typer.Option(
        help="The tuples of a source, as SOURCE=FILE (.csv, .ndjson or .parquet); once for each source."
    ),
]
PlanFile = Annotated[
    Path | None,
    typer.Option(help="Which replica runs where (.toml or .json). Without it, sites are drawn."),
]
Replicas = Annotated[
    int | None, typer.Option(min=1, help="Replicas of each operator where no plan is given; else 2.")
]
Seed = Annotated[int, typer.Option(help="Where all chance comes from: the same seed, the same run.")]


def print_json(value: Any) -> None:
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
