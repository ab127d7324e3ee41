"""Topologies as people write them: TOML with named units, to and from sites and links.

[sites.paris]
capacity = 2.0
retention = "10 minutes"

[sites.tokyo]

[[links]]
from = "paris"
to = "tokyo"
rtt = "220 ms"
bandwidth = "100 Mbit/s"

What live sites need besides, host by host, stands in the same file; only they look at it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from anabranch.durations import microseconds
from anabranch.rtt import filled, load_rtt
from anabranch.sites import Link, Site, TopologyError, constant, links_between

_RATE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kKMG]?)(bit|B|bytes)/s\s*")
_SCALE = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
_NOTHING = re.compile(r"\s*0+(\.0*)?\s*(us|ms|s|seconds)\s*")


class LiveForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a site runs, as far as the file says: the table ``live`` for all sites, and each site for itself.
    ``spark``: settings of the engine; ``http``: of the endpoint. ``nats``: a log server that somebody else
    runs. ``sources`` and ``sinks``: what the site fetches and delivers itself."""

    host: str | None = None
    port: int | None = None
    directory: str | None = None
    engine: Literal["spark", "arrow"] | None = None
    spark: dict[str, Any] = {}
    metrics_port: int | None = None
    http: dict[str, Any] | None = None
    nats: str | None = None
    sources: list[dict[str, Any]] = []
    sinks: list[dict[str, Any]] = []


class LiveTable(LiveForm, frozen=True, forbid_unknown_fields=True):
    """``security``: the directory with certificates and keys."""

    security: str | None = None


class _Site(LiveForm, frozen=True, forbid_unknown_fields=True):
    capacity: float = 1.0
    retention: str | None = None


class _Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    delay: str | list[str | int] | None = None
    rtt: str | None = None
    at: list[int] | None = None
    bandwidth: str | float | None = None
    symmetric: bool = True


class _Network(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    delay: str | None = None
    bandwidth: str | float = 0.0
    rtt: str | None = None
    names: list[str] | None = None
    rows: list[int] | None = None
    slice: int | None = None
    every: str | None = None
    start: datetime | int = 0


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sites: dict[str, _Site] = {}
    links: list[_Link] = []
    network: _Network = _Network()
    live: LiveTable = LiveTable()


def read_live(text: str) -> tuple[LiveTable, dict[str, LiveForm]]:
    """What the file says of live sites: of all, and of each that it says something of."""
    file = _file(text)
    return file.live, dict(file.sites)


def _file(text: str) -> _File:
    try:
        return msgspec.convert(tomllib.loads(text), _File)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, RecursionError) as error:
        raise TopologyError(f"not a topology: {error}") from None


def read(text: str, directory: Path) -> tuple[tuple[Site, ...], tuple[Link, ...]]:
    """The sites and links of a TOML text; an RTT file is looked for from ``directory``."""
    file = _file(text)
    network = file.network
    names = list(dict.fromkeys([*(network.names or ()), *file.sites]))
    sites = tuple(_site(name, file.sites.get(name, _Site())) for name in names)
    bandwidth = _bandwidth(network.bandwidth, "network")
    links: dict[tuple[str, str], Link] = {}
    if network.delay is not None:
        delay = _delay(network.delay, "network, delay")
        links |= {(a, b): constant(a, b, delay, bandwidth) for a in names for b in names if a != b}
    if network.rtt is not None:
        links |= _by_pair(_measured(network, network.names or names, bandwidth, directory))
    given = [_link(form, i, bandwidth) for i, form in enumerate(file.links)]
    # where a pair is named in both directions, each has the delay it names
    links |= {
        (link.target, link.source): msgspec.structs.replace(link, source=link.target, target=link.source)
        for form, link in zip(file.links, given, strict=True)
        if form.symmetric
    }
    return sites, tuple((links | _by_pair(given)).values())


def write(sites: Iterable[Site], links: Iterable[Link]) -> str:
    """The TOML of these sites and links, every direction by itself."""
    lines = []
    for site in sites:
        lines += [
            f"[sites.{site.name}]",
            f"capacity = {site.capacity}",
            f'retention = "{site.retention} us"',
            "",
        ]
    for link in links:
        lines += ["[[links]]", f'from = "{link.source}"', f'to = "{link.target}"', "symmetric = false"]
        if link.at == (0,):
            lines.append(f'delay = "{link.delay[0]} us"')
        else:
            lines += [f"at = {list(link.at)}", f"delay = {list(link.delay)}"]
        lines += [f"bandwidth = {float(link.bandwidth)}", ""]
    return "\n".join(lines)


def _site(name: str, form: _Site) -> Site:
    if form.retention is None:
        return Site(name, form.capacity)
    return Site(name, form.capacity, _duration(form.retention, f"site {name!r}, retention"))


def _link(form: _Link, number: int, bandwidth: float) -> Link:
    where = f"link {number + 1} (from {form.source!r} to {form.target!r})"
    if form.bandwidth is not None:
        bandwidth = _bandwidth(form.bandwidth, where)
    if (form.delay is None) == (form.rtt is None):
        raise TopologyError(f'{where}: give either delay = "35 ms" or rtt = "70 ms"')
    if (form.at is not None) != isinstance(form.delay, list):
        raise TopologyError(f"{where}: a delay that varies needs both lists, at and delay, in microseconds")
    if form.rtt is not None:
        return constant(form.source, form.target, _delay(form.rtt, f"{where}, rtt") // 2, bandwidth)
    if isinstance(form.delay, list):
        delay = tuple(d if isinstance(d, int) else _delay(d, f"{where}, delay") for d in form.delay)
        return Link(form.source, form.target, tuple(form.at or ()), delay, bandwidth)
    return constant(form.source, form.target, _delay(form.delay or "", f"{where}, delay"), bandwidth)


def _measured(network: _Network, names: list[str], bandwidth: float, directory: Path) -> list[Link]:
    path = directory / (network.rtt or "")
    matrix = load_rtt(path)
    rows = network.rows if network.rows is not None else list(range(len(names)))
    if len(rows) != len(names):
        raise TopologyError(f"network: {len(rows)} rows but {len(names)} names; give a row for each name")
    wrong = [row for row in rows if not 0 <= row < matrix.shape[1]]
    if wrong:
        raise TopologyError(
            f"network: there is no row {wrong[0]} in {path}; it has rows 0 to {matrix.shape[1] - 1}"
        )
    matrix = filled(matrix[:, rows][:, :, rows])
    if network.slice is not None:
        if not 0 <= network.slice < len(matrix):
            raise TopologyError(
                f"network: there is no slice {network.slice} in {path}; it has 0 to {len(matrix) - 1}"
            )
        matrix = matrix[network.slice : network.slice + 1]
    if len(matrix) > 1 and network.every is None:
        raise TopologyError(
            f"network: {path} has {len(matrix)} slices; choose one (slice = 0) or say how far apart they are "
            f'(every = "10 minutes")'
        )
    start = network.start
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise TopologyError("network: start has no time zone; end it with Z for UTC")
        start = round(start.timestamp()) * 1_000_000 + start.microsecond
    every = 0 if network.every is None else _duration(network.every, "network, every")
    return links_between(matrix, names, bandwidth, start, every)


def _by_pair(links: list[Link]) -> dict[tuple[str, str], Link]:
    pairs = {}
    for link in links:
        if (link.source, link.target) in pairs:
            raise TopologyError(
                f"the link from {link.source!r} to {link.target!r} is there twice; remove one"
            )
        pairs[link.source, link.target] = link
    return pairs


def _bandwidth(value: str | float, where: str) -> float:
    """Bytes a second."""
    if not isinstance(value, str):
        return float(value)
    match = _RATE.fullmatch(value)
    if match is None:
        raise TopologyError(
            f"{where}: bandwidth {value!r} is not a rate; write it like '100 Mbit/s' or '12.5 MB/s'"
        )
    return float(match[1]) * _SCALE[match[2]] / (8 if match[3] == "bit" else 1)


def _delay(text: str, where: str) -> int:
    return 0 if _NOTHING.fullmatch(text) else _duration(text, where)


def _duration(text: str, where: str) -> int:
    try:
        return microseconds(text, where)
    except ValueError as error:
        raise TopologyError(str(error)) from None
