"""Where live sites are and what runs them: the sites file, read for a deployment."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from anabranch.site.config import ConfigError, Spark
from anabranch.site.http.settings import Http, HttpError
from anabranch.sites_toml import LiveForm, LiveTable, read_live
from anabranch.topology import Topology

LOOPBACK = "127.0.0.1"
PORT = 4222


class Place(msgspec.Struct, frozen=True):
    """One site. ``nats``: the URL of a log server that somebody else runs; else the site runs its own at
    ``host`` and ``port``. ``spark`` None: the Arrow engine. ``http`` None: no endpoint."""

    name: str
    directory: Path
    host: str = LOOPBACK
    port: int = PORT
    spark: Spark | None = None
    metrics_port: int = 0
    nats: str | None = None
    http: Http | None = None

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
    machine, and nothing is encrypted."""

    path: Path
    topology: Topology
    places: dict[str, Place]
    security: Path | None = None

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
        places = {name: _place(name, table, forms.get(name, LiveForm()), path) for name in topology.names}
        security = None if table.security is None else (path.parent / table.security).resolve()
        return LiveSites(path, topology, places, security)

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


def _place(name: str, table: LiveTable, own: LiveForm, path: Path) -> Place:
    where = f"{path}: site {name!r}"

    def said(field: str) -> Any:
        value = getattr(own, field)
        return getattr(table, field) if value is None else value

    host = said("host") or LOOPBACK
    engine = said("engine") or "arrow"
    settings = {**table.spark, **own.spark}
    if engine == "arrow" and settings:
        raise ConfigError(f'{where}: has Spark settings but runs on Arrow; write engine = "spark"')
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
        _spark(settings, where) if engine == "spark" else None,
        ports["metrics_port"] or 0,
        nats,
        _http(own.http, where),
    )


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
        settings = {**settings, "conf": dict(_texts(conf))}
    try:
        spark = msgspec.convert(settings, Spark)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}, spark: {error}") from None
    for field in ("partitions", "salts", "batch_bytes"):
        if getattr(spark, field) < 1:
            raise ConfigError(f"{where}, spark: {field} is {getattr(spark, field)}; it must be at least 1")
    return spark


def _texts(conf: dict[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Spark's settings as Spark names them, whether the dots are in the names or in TOML's tables.

    >>> dict(_texts({"spark": {"ui": {"enabled": True}}, "spark.cores.max": 4}))
    {'spark.ui.enabled': 'true', 'spark.cores.max': '4'}
    """
    for key, value in conf.items():
        if isinstance(value, dict):
            yield from _texts(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", str(value).lower() if isinstance(value, bool) else str(value)
