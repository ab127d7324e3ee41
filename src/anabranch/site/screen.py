"""What a message must be before the protocols see it: of this query, its numbers numbers that can be.

Whoever can reach a site's inbox can send anything. What does not pass is refused as a whole; nothing of it
has been used.
"""

from __future__ import annotations

import pyarrow as pa

from anabranch.graph import Graph, Source
from anabranch.log import names
from anabranch.log.codec import Malformed
from anabranch.plan import PlanError, check_plan
from anabranch.protocols import messages as m
from anabranch.protocols.records import Sequence
from anabranch.sites import Site, constant
from anabranch.streams.batch import TIMESTAMP, TS, Batch, with_ids
from anabranch.streams.punctuation import BEGINNING, END
from anabranch.topology import Topology
from anabranch.types import arrow_schema

MESSAGE_MOST = 3_500_000
"""Bytes of tuples, ids included, that one message may bring: two of them must fit into another message."""
_LARGEST = 2**62
OF_SITES = (
    m.Mirror,
    m.Mirrored,
    m.CatchUp,
    m.CaughtUp,
    m.PlanOffer,
    m.Heartbeat,
    m.SnapshotRequest,
    m.Snapshot,
)
_ID_BYTES = 24


class Screen:
    """For messages to a site; ``most``: bytes of tuples, with their ids, that one message may bring."""

    def __init__(self, graph: Graph, sites: tuple[str, ...], most: int) -> None:
        self._sources = {source.name: source for source in graph.sources}
        self._operators = {operator.name for operator in graph.operators}
        self._submitted = {source.name: submitted_schema(source) for source in graph.sources}
        self._stamped = {source.name: with_ids(arrow_schema(source.columns)) for source in graph.sources}
        self._graph = graph
        self._sites = frozenset(sites)
        self._topology = _nowhere(sites)
        self._most = most

    def __call__(self, sender: str, message: m.Message) -> None:
        """Raises Malformed."""
        if not 0 < len(sender) <= 256:
            raise Malformed("a message from nobody; nothing was done")
        where = f"{type(message).__name__} from {sender!r}"
        if isinstance(message, OF_SITES) and sender not in self._sites:
            by_hand = isinstance(message, m.PlanOffer) and sender == names.OPERATOR
            if not by_hand:
                raise Malformed(f"{where}: only sites say that; nothing was done")
        match message:
            case m.Submit() | m.Ask() | m.Mirrored() | m.CatchUp() | m.CaughtUp() | m.Mirror():
                self._of_entry(message, where)
            case m.Needed():
                _counts((message.position,), where)
                _times((message.timestamp,), where)
            case m.PlanOffer():
                self._plan(message, where)
            case m.SnapshotRequest() | m.Snapshot():
                if message.operator not in self._operators:
                    raise Malformed(f"{where}: the query has no operator {message.operator[:40]!r}")
                if isinstance(message, m.Snapshot):
                    _times((message.punctuation,), where)
            case m.Heartbeat():
                pass
            case _:
                raise Malformed(f"{where}: sites are not told that; nothing was done")

    def _of_entry(
        self, message: m.Submit | m.Ask | m.Mirrored | m.CatchUp | m.CaughtUp | m.Mirror, where: str
    ) -> None:
        if message.source not in self._sources:
            name = message.source[:40]
            raise Malformed(f"{where}: the query has no source {name!r}; is the query the same?")
        match message:
            case m.Submit():
                self._rows(message.rows, self._submitted[message.source], where)
                _counts((message.first, message.attempt, message.safe[0]), where)
                _times((message.promise, message.high, message.safe[1]), where)
            case m.Ask():
                _counts((message.attempt,), where)
            case m.Mirror():
                self._mirror(message, where)
            case m.Mirrored():
                _counts((message.until, message.attempt), where)
                _times((message.promise,), where)
            case m.CatchUp():
                _counts([count for _, count in message.known], where)
            case m.CaughtUp():
                self._caught_up(message, where)

    def _caught_up(self, message: m.CaughtUp, where: str) -> None:
        if len(message.mirrors) != len(message.complete_from):
            raise Malformed(f"{where}: not one complete_from for each piece; nothing was done")
        _counts([count for _, count in (*message.known, *message.taken)], where)
        _times(message.complete_from, where)
        for mirror in message.mirrors:
            if mirror.source != message.source:
                raise Malformed(f"{where}: pieces of another source; nothing was done")
            self._mirror(mirror, where)

    def _mirror(self, mirror: m.Mirror, where: str) -> None:
        self._rows(mirror.rows, self._stamped[mirror.source], where)
        _sequence(mirror.sequence, where)
        _counts(mirror.show[:1], where)
        _times(mirror.show[1:], where)
        if mirror.rows is not None and mirror.rows.num_rows > mirror.sequence.until - mirror.sequence.first:
            raise Malformed(f"{where}: more tuples than its sequence has; nothing was done")

    def _rows(self, rows: Batch | None, schema: pa.Schema, where: str) -> None:
        if rows is None:
            return
        if not rows.schema.equals(schema):
            raise Malformed(f"{where}: rows of other columns than the source has; is the query the same?")
        certain = 3 if schema.names[0] == TS else int(schema.names[0] == "ts")
        if any(rows.column(i).null_count for i in range(certain)):
            raise Malformed(f"{where}: tuples without timestamps or ids; nothing was done")
        size = rows.nbytes + (0 if certain == 3 else _ID_BYTES * rows.num_rows)
        if size > self._most:
            raise Malformed(f"{where}: {size} bytes of tuples at once, at most {self._most}; send less")

    def _plan(self, offer: m.PlanOffer, where: str) -> None:
        if not abs(offer.plan.epoch) < _LARGEST:
            raise Malformed(f"{where}: epoch {offer.plan.epoch} is no number of a plan")
        try:
            check_plan(offer.plan, self._graph, self._topology)
        except PlanError as error:
            raise Malformed(f"{where}: {error}") from None


def submitted_schema(source: Source) -> pa.Schema:
    """Of what producers submit: ``ts``, if the source gives it, then the declared columns."""
    declared = arrow_schema(source.columns)
    if source.timestamps == "entry":
        return declared
    return pa.schema([pa.field("ts", TIMESTAMP), *declared])


def _nowhere(sites: tuple[str, ...]) -> Topology:
    """The sites, with no distance between them."""
    links = tuple(constant(a, b, 0) for a in sites for b in sites if a != b)
    return Topology(tuple(Site(name) for name in sites), links)


def _sequence(sequence: Sequence, where: str) -> None:
    _counts((sequence.first, sequence.until, sequence.attempt), where)
    _times((sequence.promise,), where)
    if sequence.first > sequence.until:
        raise Malformed(f"{where}: a sequence that ends before it begins; nothing was done")


def _counts(numbers: tuple[int, ...] | list[int], where: str) -> None:
    if not all(0 <= number < _LARGEST for number in numbers):
        raise Malformed(f"{where}: a number that counts nothing; nothing was done")


def _times(numbers: tuple[int, ...] | list[int], where: str) -> None:
    if not all(BEGINNING <= number <= END for number in numbers):
        raise Malformed(f"{where}: a time outside of all times; nothing was done")
