"""What a query is made of: sources, operators and outputs, frozen structs joined by the names of streams.

A stream carries the name of the source or operator that yields it. Times are int64 microseconds.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from anabranch.types import Column


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="source", tag_field="kind"):
    """Where tuples enter.

    ``timestamps`` says who gives a tuple its timestamp: the source itself or the entry point's clock. A tuple
    of a source that brings its own is late when it reaches the entry point more than ``lateness`` after its
    timestamp. ``identity`` says what makes two arrivals the same tuple: the producer's sequence; for streams
    that arrive replicated from outside, their content with multiplicity; for what every entry point reads by
    itself from the same place, the number in its partition (a file's name and row).
    """

    name: str
    columns: tuple[Column, ...]
    timestamps: Literal["source", "entry"] = "source"
    lateness: int = 0
    identity: Literal["sequence", "content", "partition"] = "sequence"

    @property
    def inputs(self) -> tuple[str, ...]:
        return ()


class _OfOneInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An operator on the stream ``input``."""

    name: str
    input: str

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)


class Filter(_OfOneInput, frozen=True, forbid_unknown_fields=True, tag="filter", tag_field="kind"):
    """Passes the tuples for which ``predicate`` is true."""

    predicate: str


class Map(_OfOneInput, frozen=True, forbid_unknown_fields=True, tag="map", tag_field="kind"):
    """Computes exactly these columns, each ``(name, expression)``."""

    columns: tuple[tuple[str, str], ...]


class Union(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="union", tag_field="kind"):
    """Merges streams of one schema; an input's position in ``inputs`` is its port."""

    name: str
    inputs: tuple[str, ...]


class Join(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="join", tag_field="kind"):
    """Pairs with ``|l.ts - r.ts| < within`` that agree on ``on`` and satisfy ``where``."""

    name: str
    left: str
    right: str
    within: int
    on: tuple[str, ...] = ()
    where: str | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.left, self.right)


class Aggregate(_OfOneInput, frozen=True, forbid_unknown_fields=True, tag="aggregate", tag_field="kind"):
    """Windows ``[e - window, e)`` for all multiples ``e`` of ``every``; aggregates are (name, expression)."""

    window: int
    every: int
    by: tuple[str, ...]
    aggregates: tuple[tuple[str, str], ...]


class CountAggregate(
    _OfOneInput, frozen=True, forbid_unknown_fields=True, tag="count_aggregate", tag_field="kind"
):
    """Per group, windows of ``count`` tuples every ``every`` tuples, in canonical order."""

    count: int
    every: int
    by: tuple[str, ...]
    aggregates: tuple[tuple[str, str], ...]


class TopK(_OfOneInput, frozen=True, forbid_unknown_fields=True, tag="top_k", tag_field="kind"):
    """The ``k`` tuples of each window with the greatest ``by`` (an expression)."""

    k: int
    by: str
    window: int
    every: int


class Custom(_OfOneInput, frozen=True, forbid_unknown_fields=True, tag="custom", tag_field="kind"):
    """User Python, ``package.module:name``; with a window it is an aggregate, without one it maps batches."""

    target: str
    columns: tuple[Column, ...]
    window: int | None = None
    every: int | None = None
    by: tuple[str, ...] = ()


Operator = Filter | Map | Union | Join | Aggregate | CountAggregate | TopK | Custom


class Output(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What applications subscribe to; ``order`` = "timestamp" delivers in canonical order."""

    name: str
    stream: str
    order: Literal["timestamp"] | None = None
