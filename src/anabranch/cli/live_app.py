"""The commands for live sites and their options. What they do lives below, and is imported when it is asked
for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from anabranch.cli.options import (
    Inputs,
    Json,
    JsonLines,
    PlanFile,
    QueryFile,
    Replicas,
    SitesFile,
    print_json,
)

live_app = typer.Typer()
site_app = typer.Typer(no_args_is_help=True, help="One live site, and what all of them need.")
plan_app = typer.Typer(no_args_is_help=True, help="The plan that live sites follow.")
live_app.add_typer(site_app, name="site")
live_app.add_typer(plan_app, name="plan")


@live_app.command()
def run(
    query: QueryFile,
    sites: SitesFile,
    inputs: Inputs = [],  # noqa: B006 - typer never changes it
    plan: PlanFile = None,
    k: Replicas = None,
    speed: Annotated[float, typer.Option(min=0.001, help="How many times as fast as the inputs say.")] = 1.0,
    directory: Annotated[
        Path | None, typer.Option(help="Where logs go, and stay. Without it they are gone afterwards.")
    ] = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="With certificates and permissions, as between hosts.")
    ] = False,
    json: JsonLines = False,
) -> None:
    """Runs your query on real sites, all of them on this machine, and audits what applications receive.

    Each site is a log server and an agent of its own, as it would be elsewhere; between them lie the delays
    and bandwidths of SITES.toml. Tuples come at their times; results are printed as they arrive. When the
    inputs end, what every application received is compared with the ideal run; exits with 1 if it is not
    that, and with 130 if it is interrupted.

    Example: `anabranch run netwatch.py sites.toml --inputs load=load.csv --inputs rtt=rtt.csv`
    """
    from anabranch.cli import run as work
    from anabranch.cli import run_screen as screens
    from anabranch.cli.live import until_done
    from anabranch.site.cluster import ClusterError

    job = work.prepare(query, sites, inputs, plan, k, directory, speed, secure)
    lines = screens.Lines()
    try:
        result = until_done(work.play(job, lines if json else screens.Terminal(Console())))
    except ClusterError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(1) from None
    if json:
        lines.say(
            {"exact": result.exact, "audit": result.audits, "sites": result.sites, "seconds": result.seconds}
        )
    else:
        screens.conclude(Console(), result.audits, result.sites)
    raise typer.Exit(0 if result.exact else 1)


@live_app.command()
def status(
    query: QueryFile,
    sites: SitesFile,
    once: Annotated[bool, typer.Option("--once", help="Look once, even where somebody watches.")] = False,
    json: Json = False,
) -> None:
    """How live sites stand: plan, fragments, branches, punctuation, who came first, events.

    On a terminal it looks again every second until it is interrupted. Punctuation age is how far behind the
    site's clock the slowest of its streams is; lag, how far a branch is behind the stream it is part of.
    Exits with 1 if no site answers.

    Example: `anabranch status netwatch.py sites.toml`
    """
    import asyncio

    from anabranch.cli import live
    from anabranch.cli import status as work

    target = live.target(query, sites, "operator")
    console = Console()
    if console.is_terminal and not once and not json:
        live.until_done(work.watch(target, console))
    found = asyncio.run(work.look(target))
    if json:
        print_json(work.report(found))
    else:
        console.print(work.tables(found))
    raise typer.Exit(0 if any(found.values()) else 1)


@live_app.command()
def tail(
    output: Annotated[str, typer.Argument(help="An output of the query, or an application of the plan.")],
    query: QueryFile,
    sites: SitesFile,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after so many tuples.")] = None,
    json: JsonLines = False,
) -> None:
    """Prints what an application receives from live sites: each tuple once, until the stream ends.

    It is that application while it runs: what it has taken, sites need not keep for another one of the same
    name. Exits with 0 when the stream has ended or the limit is reached, with 130 if it is interrupted.

    Example: `anabranch tail alerts netwatch.py sites.toml --json > received.ndjson`
    """
    from anabranch.cli import live
    from anabranch.cli import tail as work

    target = live.target(query, sites, "client")
    live.until_done(work.follow(target, output, limit, work.Lines() if json else work.Text(Console())))


@live_app.command()
def audit(
    query: QueryFile,
    inputs: Inputs = [],  # noqa: B006 - typer never changes it
    received: Annotated[
        list[str],
        typer.Option(help="What an application received, as OUTPUT=FILE (.ndjson, .csv or .parquet)."),
    ] = [],  # noqa: B006 - typer never changes it
    sites: Annotated[
        Path | None,
        typer.Option(help="Live sites: their applications' streams, from what is kept to the end."),
    ] = None,
    json: Json = False,
) -> None:
    """Compares what applications received with the ideal run of the same inputs: missing and extra tuples.

    Values count, not ids; floats may differ in the last digits. With --sites it receives every output that
    the plan has an application for, as `anabranch tail` does, until the streams end. Exits with 1 if anything
    is missing or extra.

    Example: `anabranch audit netwatch.py --inputs load=load.csv --received alerts=received.ndjson`
    """
    from anabranch.cli import audit as work
    from anabranch.cli import live

    job = work.prepare(query, inputs, received, sites)
    verdicts = live.until_done(work.run(job))
    if json:
        print_json(work.report(verdicts))
    else:
        work.show(Console(), verdicts)
    raise typer.Exit(0 if all(verdict.exact for verdict in verdicts.values()) else 1)


@plan_app.command("show")
def plan_show(query: QueryFile, sites: SitesFile, json: Json = False) -> None:
    """The plan that live sites follow; with --json as a file that `anabranch plan apply` takes.

    Example: `anabranch plan show netwatch.py sites.toml --json > plan.json`
    """
    from anabranch.cli import live
    from anabranch.cli import plan as work

    target = live.target(query, sites, "operator")
    plan = live.until_done(target.plan())
    if json:
        print_json(plan)
    else:
        Console().print(work.table(target, plan))


@plan_app.command("apply")
def plan_apply(
    plan: Annotated[Path, typer.Argument(help="The new plan (.toml or .json).", metavar="PLAN")],
    query: QueryFile,
    sites: SitesFile,
    json: Json = False,
) -> None:
    """Hands live sites a new plan, and waits until every site that answers follows it.

    Its epoch is raised above that of the plan they follow, if it is not higher. Sites that do not answer now
    learn of it from the others. Exits with 1 if a site that answers does not follow it within 20 seconds.

    Example: `anabranch plan apply plan.json netwatch.py sites.toml`
    """
    from anabranch.cli import live
    from anabranch.cli import plan as work

    target = live.target(query, sites, "operator")
    applied = live.until_done(work.apply(target, plan))
    if json:
        print_json(applied)
    else:
        print(applied.sentence)
    raise typer.Exit(0 if applied.done else 1)


@site_app.command("run")
def site_run(
    name: Annotated[str, typer.Argument(help="A site of SITES.toml: the one that this host is.")],
    sites: SitesFile,
    query: QueryFile,
    plan: PlanFile = None,
    k: Replicas = None,
) -> None:
    """Runs one live site: its log server and its agent, started again if they die, until it is told to stop.

    The same three files on every host; without --plan every site draws the same one. A plan that was applied
    since is kept in the site's log and wins. SIGINT or SIGTERM stops it. Exits with 1 if it gives up: then
    the last line says why, and the logs in its directory say more.

    Example: `anabranch site run paris sites.toml netwatch.py --plan plan.toml`
    """
    from anabranch.cli import site as work

    raise typer.Exit(work.run(name, sites, query, plan, k))


@site_app.command("init")
def site_init(
    sites: SitesFile,
    directory: Annotated[Path, typer.Option(help="Where certificates and keys go.")],
    query: Annotated[
        Path | None,
        typer.Option(help="Also write a configuration for each log server that is somebody else's."),
    ] = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Make all certificates anew, of the same authority.")
    ] = False,
    json: Json = False,
) -> None:
    """Makes what sites on several hosts need: an authority of their own, certificates, and keys.

    Each site gets a certificate, and so do clients (producers and applications) and the operator.

    What is there already stays, so that it can be said again when a site is added. Copy `sites/NAME` to that
    site's host and no other; keep `ca.key` where no site is.

    Example: `anabranch site init sites.toml --directory keys`
    """
    from anabranch.cli import site as work

    made = work.init(sites, directory, query, renew)
    if json:
        print_json({"directory": str(directory), "made": [str(each) for each in made]})
    else:
        for each in made:
            print(f"made {each}")
        print(f'{len(made)} made; in the sites file, under [live], write: security = "{directory}"')
