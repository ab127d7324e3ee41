"""How a site stands: its plan, fragments, branches, filters, log and events, as data."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from anabranch.protocols.rejoin import Rejoin
from anabranch.site.config import expires
from anabranch.site.journal import Journal
from anabranch.site.life import Life
from anabranch.site.metrics import Sample
from anabranch.streams.punctuation import BEGINNING, END


class BranchStatus(msgspec.Struct, frozen=True):
    """``behind``: records that its log held when it sent the last one. ``first``: the share of the stream's
    tuples that came first on this branch. ``lag``: how far, in seconds of event time, its punctuation is
    behind the stream's own; None before it has told one."""

    stream: str
    source: str
    connected: bool
    position: int
    behind: int
    received: int
    first: float
    lag: float | None


class StreamStatus(msgspec.Struct, frozen=True):
    """A stream of the site log; ``punctuation_age``: seconds it is behind the site's clock, None before the
    first and after the last. ``waiting``: tuples its filter remembers (in), consumers that keep it (out)."""

    stream: str
    first: int
    end: int
    punctuation_age: float | None


class SiteStatus(msgspec.Struct, frozen=True):
    """``driver``: whether the site's engine process is ready; ``engines``: the run of each fragment's.
    ``refused``: by its log server and its HTTP server, by kind: ``docs/guides/operations.md``.
    ``certificate_expires``: in seconds since 1970; None: it has none. ``attached``: its own sources and sinks
    that have not come to their end."""

    site: str
    query: str
    epoch: int
    coordinator: str
    lives: int
    fragments: tuple[tuple[str, ...], ...]
    entries: tuple[str, ...]
    branches: tuple[BranchStatus, ...]
    log: tuple[StreamStatus, ...]
    log_waiting: int
    filtered: int
    peers: dict[str, bool]
    events: dict[str, int]
    metrics_port: int
    http_port: int = 0
    driver: bool = False
    engines: dict[str, str] = {}
    refused: dict[str, int] = {}
    certificate_expires: float | None = None
    attached: tuple[str, ...] = ()


def status(
    life: Life,
    lives: int,
    peers: dict[str, bool],
    metrics_port: int,
    http_port: int,
    now: int,
    driver: bool,
    attached: tuple[str, ...],
) -> SiteStatus:
    agent = life.agent
    epoch, coordinator = agent.version
    branches = [
        branch
        for name, ingress in agent.ingresses.items()
        for branch in _branches(life, name, ingress.rejoin)
    ]
    writers = [
        *(ingress.writer for ingress in agent.ingresses.values()),
        *(egress.writer for egress in agent.egresses.values()),
    ]
    log = tuple(StreamStatus(w.stream, w.index.first, w.position, _age(w.punctuation, now)) for w in writers)
    return SiteStatus(
        life.config.site,
        life.config.query,
        epoch,
        coordinator,
        lives,
        tuple(role.operators for role in agent.fragments),
        tuple(agent.entries),
        tuple(branches),
        log,
        life.log.waiting,
        sum(ingress.rejoin.filter.live for ingress in agent.ingresses.values()),
        peers,
        _counted(life.journal, "events", "event"),
        metrics_port,
        http_port,
        driver,
        {} if life.engines is None else dict(life.engines.runs),
        _counted(life.journal, "refused", "why"),
        None if life.config.tls is None else expires(life.config.tls).timestamp(),
        attached,
    )


def _branches(life: Life, stream: str, rejoin: Rejoin) -> Iterator[BranchStatus]:
    firsts = [int(rank[0]) if len(rank) else 0 for rank in rejoin.filter.ranks]
    total = max(1, sum(firsts))
    for source, reader in rejoin.readers.items():
        link = life.links.branches.get((stream, source))
        yield BranchStatus(
            stream,
            source,
            link is not None and link.connected,
            reader.position or 0,
            0 if link is None or link.tail is None else link.tail.behind,
            rejoin.received[reader.index],
            round(firsts[reader.index] / total, 4),
            _lag(rejoin.frontier.punctuation, reader.promise),
        )


def _lag(frontier: int, promise: int) -> float | None:
    """Seconds; None while a branch has promised nothing, or only others have come to the end.

    >>> _lag(3_000_000, 1_500_000), _lag(1, 2), _lag(1, BEGINNING), _lag(END, 1), _lag(END, END)
    (1.5, 0.0, None, None, 0.0)
    """
    if promise == BEGINNING or promise < frontier == END:
        return None
    return round(max(0, frontier - promise) / 1e6, 3)


def _age(punctuation: int, now: int) -> float | None:
    return None if punctuation in (BEGINNING, END) else round((now - punctuation) / 1e6, 3)


def _counted(journal: Journal, what: str, by: str) -> dict[str, int]:
    return {dict(labels)[by]: n for (name, labels), n in journal.counts.items() if name == what}


def samples(snapshot: SiteStatus, journal: Journal) -> Iterator[Sample]:
    """The same for Prometheus."""
    for (name, labels), count in journal.counts.items():
        yield "counter", name, labels, count
    yield "gauge", "epoch", (), snapshot.epoch
    yield "gauge", "lives", (), snapshot.lives
    yield "gauge", "log_waiting", (), snapshot.log_waiting
    yield "gauge", "filtered_tuples", (), snapshot.filtered
    if snapshot.certificate_expires is not None:
        yield "gauge", "certificate_expires_seconds", (), snapshot.certificate_expires
    for site, connected in snapshot.peers.items():
        yield "gauge", "peer_connected", (("peer", site),), float(connected)
    for branch in snapshot.branches:
        labels = (("stream", branch.stream), ("branch", branch.source))
        yield "gauge", "branch_connected", labels, float(branch.connected)
        yield "gauge", "branch_position", labels, branch.position
        yield "gauge", "branch_behind_records", labels, branch.behind
        yield "gauge", "branch_first_share", labels, branch.first
        if branch.lag is not None:
            yield "gauge", "branch_lag_seconds", labels, branch.lag
    for stream in snapshot.log:
        labels = (("stream", stream.stream),)
        yield "gauge", "log_records_kept", labels, stream.end - stream.first
        if stream.punctuation_age is not None:
            yield "gauge", "punctuation_age_seconds", labels, stream.punctuation_age
