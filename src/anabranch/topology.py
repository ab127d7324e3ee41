"""Sites and the network between them, as data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from anabranch import sites_toml
from anabranch.rtt import filled
from anabranch.sites import Ints, Link, Site, TopologyError, constant, links_between

__all__ = ["Link", "Site", "Topology", "TopologyError", "constant"]


class Topology(msgspec.Struct, frozen=True, dict=True, forbid_unknown_fields=True):
    """Sites, and a link in each direction between any two of them.

    >>> near = Topology((Site("a"), Site("b")), (constant("a", "b", 35_000), constant("b", "a", 40_000)))
    >>> near.delay_at("a", "b", 0), near.delay_at("b", "a", 0), near.delay_at("a", "a", 0)
    (35000, 40000, 0)
    """

    sites: tuple[Site, ...]
    links: tuple[Link, ...]

    def __post_init__(self) -> None:
        if not self.sites:
            raise TopologyError("the topology has no site; add at least one")
        names = set(self.names)
        if len(names) < len(self.sites):
            raise TopologyError(
                f"site {_repeated(self.names)!r} is there twice; give each site a name of its own"
            )
        for link in self.links:
            for end in (link.source, link.target):
                if end not in names:
                    raise TopologyError(
                        f"link from {link.source!r} to {link.target!r}: there is no site {end!r}; "
                        f"the sites are {', '.join(self.names)}"
                    )
        if len(self._links) < len(self.links):
            source, target = _repeated([(link.source, link.target) for link in self.links])
            raise TopologyError(f"the link from {source!r} to {target!r} is there twice; remove one")
        if len(self.links) < len(names) * (len(names) - 1):
            source, target = next(
                (a, b) for a in self.names for b in self.names if a != b and (a, b) not in self._links
            )
            raise TopologyError(
                f"no link leads from {source!r} to {target!r}; add one, or a delay for all that are not named"
            )

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(site.name for site in self.sites)

    def site(self, name: str) -> Site:
        try:
            return self._sites[name]
        except KeyError:
            raise TopologyError(f"there is no site {name!r}; the sites are {', '.join(self.names)}") from None

    def link(self, source: str, target: str) -> Link:
        """The link between two different sites."""
        try:
            return self._links[source, target]
        except KeyError:
            self.site(source), self.site(target)
            raise TopologyError(f"no link leads from {source!r} to itself, nor is one needed") from None

    def delay_at(self, source: str, target: str, t: int) -> int:
        """The one-way delay in microseconds of what leaves ``source`` for ``target`` at ``t``; within a site
        0."""
        delay = self._delays.get((source, target))
        if delay is None:
            return self.link(source, target).delay_at(t)
        return delay if isinstance(delay, int) else delay(t)

    def delays_at(self, source: str, target: str, t: Ints) -> Ints:
        """``delay_at`` of every element of ``t``, the same integers."""
        if source == target and source in self._sites:
            return np.zeros(t.shape, np.int64)
        return self.link(source, target).delays_at(t)

    def subset(self, names: Sequence[str]) -> Topology:
        """These sites, in this order, and the links between them."""
        sites = tuple(self.site(name) for name in names)
        kept = set(names)
        return Topology(sites, tuple(x for x in self.links if x.source in kept and x.target in kept))

    @cached_property
    def _sites(self) -> dict[str, Site]:
        return {site.name: site for site in self.sites}

    @cached_property
    def _links(self) -> dict[tuple[str, str], Link]:
        return {(link.source, link.target): link for link in self.links}

    @cached_property
    def _delays(self) -> dict[tuple[str, str], int | Callable[[int], int]]:
        delays: dict[tuple[str, str], int | Callable[[int], int]] = {(name, name): 0 for name in self.names}
        for pair, link in self._links.items():
            delays[pair] = link.delay[0] if len(link.delay) == 1 else link.delay_at
        return delays

    @staticmethod
    def from_rtt(
        matrix_ms: npt.ArrayLike,
        names: Sequence[str],
        bandwidth: float = 0.0,
        *,
        every: float | None = None,
        start: int = 0,
        capacity: float = 1.0,
        retention: int = 600_000_000,
    ) -> Topology:
        """A topology from round-trip times in milliseconds: n x n, or T x n x n with ``every`` seconds
        between slices.

        A one-way delay is half the round-trip time of its direction. The first slice holds at ``start``
        (microseconds); between slices delays change linearly. What was not measured, NaN or 0 off the
        diagonal, is filled: by the other direction, else by the median of the pair over time, else by the
        shortest path through other sites.

        >>> Topology.from_rtt([[0, 70], [0, 0]], ["a", "b"]).delay_at("b", "a", 0)
        35000
        """
        matrix = filled(matrix_ms)
        slices, n, _ = matrix.shape
        if len(names) != n:
            raise TopologyError(
                f"the RTT matrix has {n} rows but there are {len(names)} names; give one for each row"
            )
        if len(set(names)) < n:
            raise TopologyError(f"site {_repeated(names)!r} is there twice; give each site a name of its own")
        if slices > 1 and (every is None or not 1e-6 <= every < float("inf")):
            raise TopologyError(
                f"the RTTs have {slices} slices: say how many seconds lie between them (every=600)"
            )
        links = links_between(matrix, names, bandwidth, start, round((every or 0) * 1_000_000))
        return Topology(tuple(Site(name, capacity, retention) for name in names), tuple(links))

    @staticmethod
    def load(path: str | Path) -> Topology:
        """The topology of a ``.toml`` file (its form: ``docs/guides/topologies.md``) or a ``.json`` file."""
        path = Path(path)
        try:
            if path.suffix == ".toml":
                return Topology.from_toml(path.read_text("utf-8"), path.parent)
            return Topology.from_json(path.read_bytes())
        except OSError as error:
            raise TopologyError(
                f"{path}: cannot be read ({error.strerror or error}); check the path"
            ) from None
        except ValueError as error:
            raise TopologyError(f"{path}: {error}") from None

    @staticmethod
    def from_toml(text: str, directory: str | Path = ".") -> Topology:
        """The topology of a TOML text; an RTT file is looked for from ``directory``."""
        return Topology(*sites_toml.read(text, Path(directory)))

    def to_toml(self) -> str:
        return sites_toml.write(self.sites, self.links)

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @staticmethod
    def from_json(text: bytes | str) -> Topology:
        try:
            return msgspec.json.decode(text, type=Topology)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise TopologyError(f"the topology is not as it should be: {error}") from None


def _repeated(values: Sequence[Any]) -> Any:
    return next(value for i, value in enumerate(values) if value in values[:i])
