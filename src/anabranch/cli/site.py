"""``anabranch site``: one live site of a deployment, and the keys of all."""

from __future__ import annotations

from pathlib import Path

from anabranch.cli.live import chosen_plan
from anabranch.cli.mistakes import Mistake
from anabranch.cli.simulate import load_query
from anabranch.graph import Graph
from anabranch.log.server import ServerSettings
from anabranch.plan import Plan
from anabranch.site import keys
from anabranch.site.accounts import configuration
from anabranch.site.config import SiteConfig, check_parts, check_tls
from anabranch.site.places import LOOPBACK, LiveSites, Place
from anabranch.site.process import Site, Supervisor


def run(name: str, sites: Path, query: Path, plan: Path | None, k: int | None) -> int:
    """Until it is told to stop; the exit status."""
    live = LiveSites.load(sites).check()
    graph = load_query(query)
    config = configured(live, live.place(name), graph, chosen_plan(graph, live, plan, k))
    config.directory.mkdir(parents=True, exist_ok=True)
    path = config.directory / "site.json"
    path.write_bytes(config.to_json())
    path.chmod(0o600)
    where = config.servers[name]
    print(f"site {name} runs {graph.name}: log server {where}, files in {config.directory}", flush=True)
    return Supervisor(Site.load(path), path).run()


def configured(live: LiveSites, place: Place, graph: Graph, plan: Plan) -> SiteConfig:
    """What one site must know, from what the file says of all."""
    tls = client_tls = None
    if live.security is not None:
        tls, client_tls = (of(live.security, place.name) for of in (keys.of_site, keys.of_endpoint))
        check_tls(tls)
    extra = "" if tls is None else configuration(graph, place.name, live.topology.names, tls)
    server = None
    if place.nats is None:
        host = LOOPBACK if place.is_loopback else "0.0.0.0"  # noqa: S104 - it asks who it is
        server = ServerSettings(place.name, place.directory / "log", host, place.port, extra=extra)
    config = SiteConfig(
        place.name,
        place.directory,
        graph,
        plan,
        {site: live.url(site) for site in live.topology.names},
        live.topology.site(place.name).retention,
        log=server,
        spark=place.spark,
        tls=tls,
        client_tls=client_tls,
        http=place.http,
        metrics_port=place.metrics_port,
        sources=live.sources_of(place.name, plan),
        sinks=live.sinks_of(place.name, plan),
        driver=place.driver,
    )
    check_parts(graph, plan, config.sources, config.sinks, str(live.path))
    return config


def init(sites: Path, directory: Path, query: Path | None, renew: bool) -> list[Path]:
    """Makes what is missing; what is new."""
    live = LiveSites.load(sites)
    hosts = {name: (live.place(name).address[0],) for name in live.topology.names}
    made = keys.create(directory, hosts, renew)
    if query is None:
        return made
    graph = load_query(query)
    foreign = [name for name in live.topology.names if live.place(name).nats is not None]
    if not foreign:
        raise Mistake(f"{sites}: --query is for log servers that are somebody else's, and no site names one")
    for name in foreign:
        path = directory / "sites" / name / "nats.conf"
        tls = keys.of_site(directory.resolve(), name)
        path.write_text(configuration(graph, name, live.topology.names, tls), "utf-8")
        made.append(path)
    return made
