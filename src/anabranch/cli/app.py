"""The commands and their options. What they do lives below, and is imported when it is asked for."""

from __future__ import annotations

from importlib.metadata import version as installed
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from anabranch.cli.live_app import live_app
from anabranch.cli.mistakes import Mistake, told
from anabranch.cli.options import Inputs, Json, PlanFile, QueryFile, Replicas, Seed, SitesFile, print_json

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="One streaming query on several sites at once, its branches rejoined: each result once, "
    "by the fastest path, as if nothing had failed.",
)
bench_app = typer.Typer(no_args_is_help=True, help="Measures this machine.")
lab_app = typer.Typer(
    no_args_is_help=True, help="Figures: what the papers and this project's models look like."
)
app.add_typer(live_app)
app.add_typer(bench_app, name="bench")
app.add_typer(lab_app, name="lab")


def main() -> None:
    """Runs the command line; a mistake in what was given is one sentence on stderr and exit status 2."""
    with told():
        app()


@app.command()
def demo(
    seconds: Annotated[int, typer.Option(min=10, max=600, help="How long the inputs last.")] = 75,
    seed: Seed = 1,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Seven simulated sites rather than four real ones.")
    ] = False,
    engine: Annotated[Literal["spark", "arrow"], typer.Option(help="What computes at real sites.")] = "spark",
    json: Json = False,
) -> None:
    """Sites around the world, one killed, one cut off: what an application notices, and the audit.

    Four sites on this machine, each a log server, an agent and, where the query runs, a Spark driver; the
    delays between them are those measured between the places they are named after. With `--simulated` sites,
    network and failures are simulated, and the protocols and operators are the real ones. Exits with 1 if the
    application did not receive exactly the ideal run.

    Example: `anabranch demo --seconds 60`
    """
    if not simulated:
        from anabranch.cli import live_demo

        raise typer.Exit(live_demo.show(seconds, seed, engine, json))
    from anabranch.lab import demo as lab
    from anabranch.lab import demo_screen as screen

    scene = lab.scenario(seconds, seed)
    if json:
        outcome = lab.play(scene, seed)
        print_json(lab.report(outcome))
    else:
        console = Console()
        screen.introduce(console, scene)
        with console.status(f"simulating {seconds} seconds on {len(scene.topology.sites)} sites, twice"):
            outcome = lab.play(scene, seed)
        screen.narrate(console, outcome)
        screen.conclude(console, outcome)
    raise typer.Exit(0 if outcome.kept_its_word else 1)


@app.command()
def simulate(
    query: QueryFile,
    sites: SitesFile,
    inputs: Inputs = [],  # noqa: B006 - typer never changes it
    plan: PlanFile = None,
    faults: Annotated[Path | None, typer.Option(help="What fails and when (.toml or .json).")] = None,
    k: Replicas = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Runs your query on your sites under your faults, and audits what applications receive.

    The audit compares with the ideal run: one copy, no failure, no delay. Exits with 1 if an application did
    not receive exactly that. Times in the list of faults are seconds on the inputs' own time line.

    Example: `anabranch simulate netwatch.py sites.toml --inputs load=load.csv --faults crash.toml`
    """
    from anabranch.cli import simulate as work

    job = work.prepare(query, sites, inputs, plan, faults, k, seed)
    result = work.run(job)
    if json:
        print_json(work.report(job, result))
    else:
        work.show(Console(), job, result)
    raise typer.Exit(0 if result.exact else 1)


@app.command()
def fuzz(
    runs: Annotated[int, typer.Option(min=1, help="How many random runs.")] = 300,
    seed: Seed = 1,
    json: Json = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; one for each core by default.")
    ] = None,
    case: Annotated[
        int | None, typer.Option(min=0, help="Run only this one of the seed's cases, and say what it is.")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option(help="Run the case in this file, which a failure has left.")
    ] = None,
) -> None:
    """Draws random queries, sites, plans, inputs and faults, runs each, and compares it with the ideal run.

    A failure is shrunk, written to `fuzz-failures/`, and named with the command that runs it again.
    Exits with 1 if any run failed.

    Example: `anabranch fuzz --runs 1000 --seed 3`
    """
    from anabranch.fuzz.command import command

    raise typer.Exit(command(runs, seed, json=json, workers=workers, case=case, replay=replay))


@app.command()
def wan(
    sites: Annotated[Path, typer.Argument(help="The topology.", metavar="SITES.toml")],
    server: Annotated[
        list[str],
        typer.Option(help="Where a site's server listens, as SITE=HOST:PORT; once for each that has one."),
    ] = [],  # noqa: B006 - typer never changes it
    faults: Annotated[
        Path | None, typer.Option(help="What happens to the links and when (.toml or .json).")
    ] = None,
    jitter: Annotated[
        str | None, typer.Option(help="The most that chance adds to a delay, such as '5 ms'; else nothing.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Where the chance of --jitter comes from.")] = 0,
    reset_after: Annotated[
        str | None,
        typer.Option(
            help="A cut this long, such as '15 s', breaks connections when it ends; else none does."
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line: addresses, answers, the end.")
    ] = False,
) -> None:
    """Puts emulated links between servers and processes on this machine, and breaks them as it is told.

    Prints at which address processes of one site find the server of another, plays the list of faults (times
    in seconds from the start), and takes commands from standard input, one a line: `cut A B`, `stall A B`,
    `slow A B 3`, each with `for 10 s` if it shall end by itself, `heal A B`, `reset A B`, `status`, `quit`.
    Listens on 127.0.0.1 only. Runs until `quit`, SIGINT or SIGTERM. Exits with 2 if it could not do what a
    line says.

    Example: `anabranch wan sites.toml --server paris=127.0.0.1:4222 --server tokyo=127.0.0.1:4223`
    """
    import asyncio

    from anabranch.cli import wan as work

    job = work.prepare(sites, server, faults, jitter, seed, reset_after)
    raise typer.Exit(asyncio.run(work.serve(job, json)))


@bench_app.command("filter")
def bench_filter(json: Json = False) -> None:
    """Tuples a second through the duplicate filter, on one core, beside a Python set and a query engine.

    Example: `anabranch bench filter --json`
    """
    from anabranch.lab.bench_filter import measure

    _report_measures("The duplicate filter", measure(), json)


@bench_app.command("sim")
def bench_sim(json: Json = False) -> None:
    """Events and tuples a second of the simulator, and how long the flow model takes for a month.

    Example: `anabranch bench sim --json`
    """
    from anabranch.lab.bench_sim import measure

    _report_measures("The simulator", measure(), json)


@bench_app.command("soak")
def bench_soak(
    minutes: Annotated[int, typer.Option(min=1, help="How long tuples come.")] = 30,
    rate: Annotated[int, typer.Option(min=1, help="Tuples a second, of both sources together.")] = 2000,
    engine: Annotated[Literal["spark", "arrow"], typer.Option(help="What computes at the sites.")] = "spark",
    seed: Seed = 1,
    json: Json = False,
) -> None:
    """Four live sites for long, one of which is killed and comes back every minute: do memory and disk grow?

    Tells of each site, and of all, the median megabytes in the first third of the run and in the last, and
    the slope. All that the applications receive is compared with the ideal run as it goes; exits with 1 if
    it is not exactly that.

    Example: `anabranch bench soak --minutes 30 --rate 2000 --json`
    """
    from anabranch.cli import soak as work

    raise typer.Exit(work.show(minutes, rate, seed, engine, json))


@bench_app.command("failover")
def bench_failover(json: Json = False) -> None:
    """How long an application waits when the site whose results come first is killed, beside plain Spark.

    Takes about four minutes.

    Example: `anabranch bench failover --json`
    """
    from anabranch.lab.bench_failover import measure

    _report_measures("A site is killed", measure(), json)


@bench_app.command("throughput")
def bench_throughput(
    query: Annotated[
        Literal["stateless", "join", "aggregate"] | None,
        typer.Option(help="Which of the queries; all three unless given."),
    ] = None,
    json: Json = False,
) -> None:
    """Rows a second from their producer to the application, on one site and on two, beside plain Spark.

    Takes about two minutes for each query.

    Example: `anabranch bench throughput --query stateless --json`
    """
    from anabranch.lab.bench_throughput import measure
    from anabranch.lab.queries import QUERIES

    _report_measures("Rows a second", measure(tuple(QUERIES) if query is None else (query,)), json)


@bench_app.command("latency")
def bench_latency(json: Json = False) -> None:
    """How long a tuple takes through Spark, from its producer to the application, and where the time goes.

    Takes about three minutes.

    Example: `anabranch bench latency --json`
    """
    from anabranch.lab.bench_latency import measure

    _report_measures("From entry to application", measure(), json)


@bench_app.command("footprint")
def bench_footprint(json: Json = False) -> None:
    """Memory, and processor time at rest and at 100 rows a second, of four sites with Spark on this machine.

    Takes about three minutes.

    Example: `anabranch bench footprint --json`
    """
    from anabranch.lab.bench_footprint import measure

    _report_measures("Four sites with Spark", measure(), json)


@lab_app.command("list")
def lab_list(json: Json = False) -> None:
    """The figures that can be drawn.

    Example: `anabranch lab list`
    """
    from anabranch.lab.figures import FIGURES

    if json:
        print_json({"figures": {name: figure.about for name, figure in FIGURES.items()}})
    else:
        for name, figure in FIGURES.items():
            print(f"{name}: {figure.about}")


@lab_app.command("run")
def lab_run(
    figure: Annotated[str, typer.Argument(help="One of those that `anabranch lab list` names.")],
    out: Annotated[Path, typer.Option(help="The directory for the picture.")] = Path("out"),
    data: Annotated[
        Path | None, typer.Option(envvar="ANABRANCH_DATA", help="The directory of measured data.")
    ] = None,
    json: Json = False,
) -> None:
    """Draws a figure and prints the numbers behind it.

    Example: `anabranch lab run traces --data ../shared/data`
    """
    from anabranch.lab.figures import draw

    path, numbers = draw(figure, out, data)
    if json:
        print_json({"figure": figure, "picture": str(path), "numbers": numbers})
    else:
        Console().print(_numbers(figure, numbers))
        print(f"picture: {path}")


@app.command()
def version() -> None:
    """The version of Anabranch.

    Example: `anabranch version`
    """
    print(installed("anabranch"))


def _report_measures(title: str, measures: dict[str, Any], json: bool) -> None:
    if json:
        print_json(measures)
        return
    table = Table(title=title, title_justify="left")
    table.add_column("measure")
    table.add_column("value", justify="right")
    for name, value in measures.items():
        table.add_row(name, f"{value:,.4g}" if isinstance(value, float) else str(value))
    Console().print(table)


def _numbers(title: str, numbers: dict[str, Any]) -> Table:
    """One row for each statistic, one column for each thing compared."""
    table = Table(title=title, title_justify="left")
    table.add_column("")
    columns = [(part, label) for part, labels in numbers.items() for label in labels]
    for part, label in columns:
        table.add_column(f"{part}\n{label}", justify="right")
    first_part, first_label = columns[0]
    for statistic in numbers[first_part][first_label]:
        table.add_row(statistic, *(f"{numbers[part][label][statistic]:,.4g}" for part, label in columns))
    return table


__all__ = ["Mistake", "app", "main"]
