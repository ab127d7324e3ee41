"""``anabranch audit``: what was received, from files or from live sites, against the ideal run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from anabranch.cli.live import Target, target
from anabranch.cli.mistakes import Mistake
from anabranch.cli.run import table
from anabranch.cli.simulate import load_query, paths
from anabranch.engines.ideal import ideal
from anabranch.graph import Graph
from anabranch.input_tables import lossless
from anabranch.inputs import load_inputs, read_table
from anabranch.lab.compare import compare
from anabranch.site import ndjson
from anabranch.site.journal import Journal
from anabranch.site.subscription import Receiver
from anabranch.types import arrow_schema

_EXAMPLES = 5


class Job(msgspec.Struct, frozen=True):
    """``received``: by output; ``live``: where the rest is received now."""

    graph: Graph
    inputs: dict[str, pa.Table]
    received: dict[str, pa.Table]
    live: Target | None


class Verdict(msgspec.Struct, frozen=True):
    """``examples``: of missing and extra tuples, the first few of each, as values in the columns' order."""

    output: str
    expected: int
    delivered: int
    missing: int
    extra: int
    examples: dict[str, list[Any]]

    @property
    def exact(self) -> bool:
        return not self.missing and not self.extra


def prepare(query: Path, inputs: Sequence[str], received: Sequence[str], sites: Path | None) -> Job:
    """Reads and checks everything; whatever is wrong is a sentence that names its place."""
    if (sites is None) == (not received):
        raise Mistake("what was received? give either --received OUTPUT=FILE or --sites SITES.toml")
    graph = load_query(query)
    for source in graph.sources:
        if source.timestamps == "entry":
            raise Mistake(
                f"source {source.name!r} is given its timestamps where it enters: its file does not tell "
                "what should have come, and there is nothing to compare with"
            )
    tables = load_inputs(graph, paths(inputs, "--inputs"))
    files = paths(received, "--received")
    found = {name: _received(graph, name, path) for name, path in files.items()}
    return Job(graph, tables, found, None if sites is None else target(query, sites, "client"))


def _received(graph: Graph, name: str, path: Path) -> pa.Table:
    output = next((each for each in graph.outputs if each.name == name), None)
    if output is None:
        known = ", ".join(each.name for each in graph.outputs)
        raise Mistake(f"--received {name}={path}: the query has no output {name!r}; it has {known}")
    schema = pa.schema(
        [pa.field("ts", pa.timestamp("us", "UTC")), *arrow_schema(graph.schema(output.stream))]
    )
    found = read_table(path, {field.name: field.type for field in schema})
    if not found.num_rows:
        return schema.empty_table()
    for field in schema:
        if field.name not in found.column_names:
            raise Mistake(f"{path}: has no column {field.name!r}; is it what {name!r} yields?")
    columns = [lossless(found.column(f.name), f.type, f"{path}, column {f.name!r}") for f in schema]
    return pa.table(columns, schema=schema)


async def run(job: Job) -> dict[str, Verdict]:
    """By output, or by application where it was received now."""
    received = [(name, name, rows) for name, rows in job.received.items()]
    if job.live is not None:
        received = await _receive(job.live)
    expected = ideal(job.graph, job.inputs)
    return {called: _verdict(output, expected[output], rows) for called, output, rows in received}


def _verdict(output: str, expected: pa.Table, received: pa.Table) -> Verdict:
    missing, extra = compare(expected, received)
    examples = {"missing": missing, "extra": extra}
    return Verdict(
        output,
        expected.num_rows,
        received.num_rows,
        len(missing),
        len(extra),
        {kind: [list(map(ndjson.value, row)) for row in rows[:_EXAMPLES]] for kind, rows in examples.items()},
    )


async def _receive(live: Target) -> list[tuple[str, str, pa.Table]]:
    """What every application of the plan receives to the end of its stream: name, output, rows."""
    plan = await live.plan()
    outputs = {output.name: output.stream for output in live.graph.outputs}

    async def take(name: str, output: str) -> tuple[str, str, pa.Table]:
        async with Receiver(live.deployment(plan), name, Journal()) as receiver:
            batches = [rows async for rows in receiver]
        return name, output, table(batches, arrow_schema(live.graph.schema(outputs[output])))

    return list(await asyncio.gather(*(take(s.name, s.output) for s in plan.subscriptions)))


def report(verdicts: dict[str, Verdict]) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {"exact": all(verdict.exact for verdict in verdicts.values()), "audit": verdicts}


def show(console: Console, verdicts: dict[str, Verdict]) -> None:
    title = "Audit against the ideal run"
    shown = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    shown.add_column("received")
    for column in ("ideal", "delivered", "missing", "extra"):
        shown.add_column(column, justify="right")
    for name, each in verdicts.items():
        counts = (f"[red]{count}[/]" if count else "0" for count in (each.missing, each.extra))
        shown.add_row(name, str(each.expected), str(each.delivered), *counts)
    console.print(shown)
    for name, each in verdicts.items():
        for kind, rows in each.examples.items():
            for row in rows:
                console.print(f"  {kind} in {name}: {row}", highlight=False, markup=False)
