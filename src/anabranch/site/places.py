"""Where live sites are and what runs them: the sites file, read for a deployment."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from anabranch.plan import Plan
from anabranch.site.attached_toml import read_sinks, read_sources, texts
from anabranch.site.config import ConfigError, Spark, delivered_at, fetched_at
from anabranch.site.http.settings import Http, HttpError
from anabranch.site.sinks.settings import SinkSettings, ToSpark
from anabranch.site.sources.settings import FromSpark, SourceSettings
from anabranch.sites_toml import LiveForm, LiveTable, read_live
from anabranch.topology import Topology

LOOPBACK = "127.0.0.1"
PORT = 4222
LONGEST_TRIGGER = 10.0
"""A query that waits for its next batch is not told to stop before that is due."""


class Place(msgspec.Struct, frozen=True):
    """One site. ``nats``: the URL of a log server that somebody else runs; else the site runs its own at
    ``host`` and ``port``. ``spark`` None: the Arrow engine. ``http`` None: no endpoint. ``sources`` and
    ``sinks``: its own. ``driver``: what Spark is started with for these, where it is not the engine."""

    name: str
    directory: Path
    host: str = LOOPBACK
    port: int = PORT
    spark: Spark | None = None
    metrics_port: int = 0
    nats: str | None = None
    http: Http | None = None
    sources: tuple[SourceSettings, ...] = ()
    sinks: tuple[SinkSettings, ...] = ()
    driver: Spark | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Of its log server."""
        if self.nats is None:
            return self.host, self.port
        url = urlsplit(self.nats)
        return url.hostname or "", url.port or PORT

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.address[0])


class LiveSites(msgspec.Struct, frozen=True):
    """``security``: the directory that ``anabranch site init`` has filled; None: everything is on this
    machine, and nothing is encrypted. ``sources`` and ``sinks``: of whatever sites the plan makes their entry
    points and places."""

    path: Path
    topology: Topology
    places: dict[str, Place]
    security: Path | None = None
    sources: tuple[SourceSettings, ...] = ()
    sinks: tuple[SinkSettings, ...] = ()

    def place(self, site: str) -> Place:
        self.topology.site(site)
        return self.places[site]

    def url(self, site: str) -> str:
        place = self.places[site]
        host, port = place.address
        if place.nats is not None and self.security is None:
            return place.nats
        scheme = "nats" if self.security is None else "tls"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    @staticmethod
    def load(path: Path) -> LiveSites:
        """The sites of a TOML file (its form: ``docs/guides/deployment.md``), as far as each is by itself;
        see :meth:`check`."""
        topology = Topology.load(path)
        if path.suffix != ".toml":
            raise ConfigError(f"{path}: only a .toml file says how live sites run; write it as one")
        table, forms = read_live(path.read_text("utf-8"))
        where = f"{path}: live"
        sources, sinks = read_sources(table.sources, where, path), read_sinks(table.sinks, where, path)
        by_spark = _is_spark(sources, sinks)
        places = {
            name: _place(name, table, forms.get(name, LiveForm()), path, by_spark) for name in topology.names
        }
        security = None if table.security is None else (path.parent / table.security).resolve()
        _check_distinct(sources, sinks, places, path)
        return LiveSites(path, topology, places, security, sources, sinks)

    def sources_of(self, site: str, plan: Plan) -> tuple[SourceSettings, ...]:
        """What this site fetches itself under ``plan``."""
        return (*fetched_at(site, self.sources, plan), *self.places[site].sources)

    def sinks_of(self, site: str, plan: Plan) -> tuple[SinkSettings, ...]:
        """Where this site delivers to itself under ``plan``."""
        return (*delivered_at(site, self.sinks, plan), *self.places[site].sinks)

    def check(self) -> LiveSites:
        """The same, if these sites can run as the file says; else a ConfigError."""
        taken: dict[tuple[str, int], str] = {}
        for place in self.places.values():
            where = f"{self.path}: site {place.name!r}"
            if self.security is None and not place.is_loopback:
                raise ConfigError(
                    f"{where}: {place.address[0]} is not this machine, and nothing would be encrypted or "
                    "kept apart; run `anabranch site init`, and name its directory as security in [live]"
                )
            other = taken.setdefault(place.address, place.name)
            if other != place.name:
                host, port = place.address
                raise ConfigError(
                    f"{where}: its log server would be at {host}:{port}, as that of {other!r}; "
                    "give each a port or a host of its own"
                )
        return self


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _place(name: str, table: LiveTable, own: LiveForm, path: Path, by_spark: bool) -> Place:
    """``by_spark``: whether all sites fetch or deliver something by Spark."""
    where = f"{path}: site {name!r}"

    def said(field: str) -> Any:
        value = getattr(own, field)
        return getattr(table, field) if value is None else value

    host = said("host") or LOOPBACK
    engine = said("engine") or "arrow"
    settings = {**table.spark, **own.spark}
    sources, sinks = read_sources(own.sources, where, path), read_sinks(own.sinks, where, path)
    # What stands in the table is for the others where a site says itself that it runs on Arrow.
    meant = own.spark if own.engine is not None else settings
    if engine == "arrow" and meant and not (by_spark or _is_spark(sources, sinks)):
        raise ConfigError(f'{where}: has Spark settings but runs on Arrow; write engine = "spark"')
    spark = _spark(settings, where)
    ports = {"port": said("port"), "metrics_port": said("metrics_port")}
    for field, port in ports.items():
        if port is not None and not 0 < port < 1 << 16:
            raise ConfigError(f"{where}: {field} is {port}; ports are from 1 to 65535")
    if own.nats is not None and (own.host is not None or own.port is not None):
        raise ConfigError(f"{where}: give nats, for a log server that is there, or host and port, not both")
    nats = said("nats")
    if nats is not None and (urlsplit(nats).scheme not in ("nats", "tls") or not urlsplit(nats).hostname):
        raise ConfigError(f"{where}: nats is {nats!r}; write a URL such as 'nats://127.0.0.1:4222'")
    return Place(
        name,
        _directory(name, table, own, path),
        host,
        ports["port"] or PORT,
        spark if engine == "spark" else None,
        ports["metrics_port"] or 0,
        nats,
        _http(own.http, where),
        sources,
        sinks,
        None if engine == "spark" else spark,
    )


def _is_spark(sources: tuple[SourceSettings, ...], sinks: tuple[SinkSettings, ...]) -> bool:
    return any(isinstance(each, FromSpark | ToSpark) for each in (*sources, *sinks))


def _check_distinct(
    sources: tuple[SourceSettings, ...],
    sinks: tuple[SinkSettings, ...],
    places: dict[str, Place],
    path: Path,
) -> None:
    """A source comes, and an application's results go, in one way at each site."""
    for place in places.values():
        sites = f"{path}: site {place.name!r}"
        fetched = [each.source for each in (*sources, *place.sources)]
        delivered = [each.application for each in (*sinks, *place.sinks)]
        for what, named in (("source", fetched), ("sink", delivered)):
            for name in named:
                if named.count(name) > 1:
                    raise ConfigError(f"{sites}: there are two {what}s for {name!r}; leave one")


def _directory(name: str, table: LiveTable, own: LiveForm, path: Path) -> Path:
    """A site's own, or the one of its name in that of all sites; both from where the file is."""
    if own.directory is not None:
        return (path.parent / own.directory).resolve()
    return (path.parent / (table.directory or "anabranch-data")).resolve() / name


def _http(settings: dict[str, Any] | None, where: str) -> Http | None:
    if settings is None:
        return None
    try:
        http = msgspec.convert(settings, Http)
        http.check()
    except (msgspec.ValidationError, HttpError) as error:
        raise ConfigError(f"{where}, http: {error}") from None
    return http


def _spark(settings: dict[str, Any], where: str) -> Spark:
    conf = settings.get("conf")
    if isinstance(conf, dict):
        settings = {**settings, "conf": dict(texts(conf))}
    try:
        spark = msgspec.convert(settings, Spark)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}, spark: {error}") from None
    for field in ("partitions", "salts", "batch_bytes"):
        if getattr(spark, field) < 1:
            raise ConfigError(f"{where}, spark: {field} is {getattr(spark, field)}; it must be at least 1")
    if not 0 <= spark.trigger <= LONGEST_TRIGGER:
        raise ConfigError(
            f"{where}, spark: trigger is {spark.trigger:g}; write seconds from 0 to {LONGEST_TRIGGER:g}"
        )
    return spark
