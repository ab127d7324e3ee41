"""What a site must know to run: its query, its plan, and where the others are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from cryptography import x509

from anabranch.graph import Graph
from anabranch.log import names
from anabranch.log.connection import Access, Tls
from anabranch.log.server import ServerSettings
from anabranch.plan import Plan
from anabranch.protocols.settings import Settings
from anabranch.site.http.settings import Http
from anabranch.site.sinks.settings import SinkSettings, ToSpark
from anabranch.site.sources.settings import FromSpark, SourceSettings, readers
from anabranch.streams.batch import with_ids
from anabranch.types import arrow_schema


class ConfigError(ValueError):
    """A configuration that cannot be used: the sentence says where, what, and what to do."""


class Spark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The engine of a site. ``master``: any that Spark knows; ``partitions``: of the state of each operator;
    ``salts``: parts into which a join without ``on`` is divided; ``trigger``: seconds between the beginnings
    of two batches, at least, unless much waits; ``checkpoints``: where all hosts of a cluster see it, unless
    given under the site's directory. ``conf``: more of Spark's settings, which win."""

    master: str = "local[1]"
    memory: str = "512m"
    partitions: int = 1
    salts: int = 1
    batch_bytes: int = 64 << 20
    trigger: float = 0.15
    checkpoints: str | None = None
    conf: dict[str, str] = {}


class SiteConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``servers``: for each site of the deployment, this one too, the URL at which this site reaches its log
    server. ``log``: the server that this site runs itself; None if it is run by somebody else.
    ``spark``: what runs the fragments; None: the Arrow engine, in the agent's own process. ``tls``: who this
    site is, and ``client_tls`` who its HTTP endpoint is; None: everything is on this machine. ``http``: where
    producers and readers reach this site over HTTP; None: nowhere. ``sources``: what this site fetches
    itself; ``sinks``: where it delivers results itself. ``driver``: the Spark that does that where the
    fragments run on Arrow; None: the usual one. ``metrics_port`` 0: any that is free. ``bound``: the site
    ends when its standard input does."""

    site: str
    directory: Path
    graph: Graph
    plan: Plan
    servers: dict[str, str]
    retention: int
    settings: Settings = Settings()
    log: ServerSettings | None = None
    spark: Spark | None = None
    tls: Tls | None = None
    metrics_port: int = 0
    bound: bool = False
    http: Http | None = None
    client_tls: Tls | None = None
    sources: tuple[SourceSettings, ...] = ()
    sinks: tuple[SinkSettings, ...] = ()
    driver: Spark | None = None

    @property
    def attaches_spark(self) -> bool:
        """Whether a source or a sink of this site is Spark's."""
        return any(isinstance(each, FromSpark | ToSpark) for each in (*self.sources, *self.sinks))

    @property
    def checkpoints(self) -> str:
        """Where Spark keeps how far it is."""
        spark = self.spark or self.driver
        return (None if spark is None else spark.checkpoints) or str(self.directory / "checkpoints")

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self.servers)

    @property
    def query(self) -> str:
        return self.graph.name

    def access(self, site: str) -> Access:
        gate = None if site == self.site else names.gate(self.query, site)
        return _access(self.servers[site], site, self.tls, self.site, gate)

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self, enc_hook=str))

    @staticmethod
    def load(path: Path) -> SiteConfig:
        try:
            config = msgspec.json.decode(path.read_bytes(), type=SiteConfig, dec_hook=_path)
            config.graph.validate()
            if config.http is not None:
                config.http.check()
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror or error}); check the path") from None
        except (msgspec.DecodeError, ValueError) as error:
            raise ConfigError(f"{path}: {error}") from None
        check_parts(config.graph, config.plan, config.sources, config.sinks, str(path))
        if config.site not in config.servers:
            raise ConfigError(f"{path}: servers names no URL for {config.site!r} itself; add it")
        for tls in (config.tls, config.client_tls):
            if tls is not None:
                check_tls(tls)
        return config


def fetched_at(site: str, sources: Sequence[SourceSettings], plan: Plan) -> tuple[SourceSettings, ...]:
    """Of sources that are described for all sites, those that this one fetches."""
    return tuple(each for each in sources if site in readers(each, plan.entries.get(each.source, ())))


def delivered_at(site: str, sinks: Sequence[SinkSettings], plan: Plan) -> tuple[SinkSettings, ...]:
    """Of sinks that are described for all sites, those whose application is at this one."""
    here = {subscription.name for subscription in plan.subscriptions if subscription.site == site}
    return tuple(each for each in sinks if each.application in here)


def check_parts(
    graph: Graph,
    plan: Plan,
    sources: Sequence[SourceSettings],
    sinks: Sequence[SinkSettings],
    where: str,
) -> None:
    """Raises ConfigError if there is nothing in the query or the plan that a source or a sink is for."""
    known = {source.name: source for source in graph.sources}
    for fetched in sources:
        if fetched.source not in known:
            raise ConfigError(
                f"{where}: sources: there is no source {fetched.source!r}; the query has {', '.join(known)}"
            )
        problem = None
        if isinstance(fetched, FromSpark):
            problem = fetched.problem() or fetched.misfit(known[fetched.source])
        if problem is not None:
            raise ConfigError(f"{where}: source {fetched.source!r}: {problem}")
    applications = [subscription.name for subscription in plan.subscriptions]
    for delivered in sinks:
        if delivered.application not in applications:
            raise ConfigError(
                f"{where}: sinks: the plan has no application {delivered.application!r}; "
                f"it has {', '.join(applications)}"
            )
        problem = delivered.problem() if isinstance(delivered, ToSpark) else None
        if problem is not None:
            raise ConfigError(f"{where}: sink {delivered.application!r}: {problem}")


def _path(kind: type[Any], value: Any) -> Any:
    if kind is not Path:
        raise ValueError(f"{kind.__name__} is nothing that a configuration holds")
    return Path(value)


class Deployment(msgspec.Struct, frozen=True):
    """What a client must know: producers and applications. ``servers``: where it reaches each site.
    ``tls``: what vouches for the client, as one of kind ``role``."""

    graph: Graph
    plan: Plan
    servers: dict[str, str]
    settings: Settings = Settings()
    tls: Tls | None = None
    role: str = names.CLIENT

    def access(self, site: str) -> Access:
        return _access(self.servers[site], site, self.tls, self.role, names.gate(self.graph.name, site))


def _access(url: str, site: str, tls: Tls | None, name: str, gate: str | None) -> Access:
    if tls is None:
        return Access(url)
    return Access(url, tls=tls, server=site, inbox=names.replies(name), gate=gate)


def check_tls(tls: Tls) -> None:
    """Raises ConfigError if there are no such certificate and key."""
    for file in (tls.ca, tls.certificate, tls.key):
        if not file.is_file():
            raise ConfigError(f"{file}: is not there; `anabranch site init` makes it, or copy it here")
    try:
        tls.context()
        until = expires(tls)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{tls.certificate}: cannot be used with {tls.key} and {tls.ca} ({error}); make them anew with "
            "`anabranch site init --renew`"
        ) from None
    if until < datetime.now(UTC):
        raise ConfigError(
            f"{tls.certificate}: has expired on {until:%Y-%m-%d}; make it anew with "
            "`anabranch site init --renew`"
        )


def expires(tls: Tls) -> datetime:
    """When its certificate does."""
    return x509.load_pem_x509_certificate(tls.certificate.read_bytes()).not_valid_after_utc


class Schemas:
    """Of the rows in the streams of a site log, ids included."""

    def __init__(self, graph: Graph) -> None:
        names = [node.name for node in (*graph.sources, *graph.operators)]
        self._rows = {name: with_ids(arrow_schema(graph.schema(name))) for name in names}

    def rows(self, stream: str) -> pa.Schema | None:
        """Of a stream of the query."""
        return self._rows.get(stream)

    def of_log(self, stream: str) -> pa.Schema | None:
        """Of a stream of a site log: in/NAME, out/NAME, ...; None where its records have no rows."""
        kind, _, name = stream.partition("/")
        return self._rows.get(name) if kind in ("in", "out", "held", "late") else None
