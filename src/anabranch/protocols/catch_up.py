"""How an entry point gets from its peers what its log lacks, and when it must give that up.

A hole in a producer's sequence that the producer will not send again is asked for at every peer. What all of
them lack is lost; a peer that does not answer is waited for, ``gap_patience`` long.
"""

from __future__ import annotations

import msgspec

from anabranch.protocols.effects import Effect, Send
from anabranch.protocols.messages import CatchUp, CaughtUp, Mirror
from anabranch.protocols.progress import end
from anabranch.protocols.records import HEADER, Record
from anabranch.protocols.settings import Settings
from anabranch.streams.punctuation import BEGINNING

Known = tuple[tuple[str, int], ...]
"""For each producer, the next sequence expected."""


class CatchingUp:
    """What has been asked for, and which peers turned out not to have it."""

    def __init__(self, source: str, settings: Settings) -> None:
        self._source = source
        self._settings = settings
        self._asked = BEGINNING
        self._since: dict[str, int] = {}
        """For each producer of which something is missing: since when that is known."""
        self._lacking: set[str] = set()

    def ask(self, now: int, peers: tuple[str, ...], known: Known) -> list[Effect]:
        """What do the peers hold that this log lacks? Not asked again before they could have answered."""
        if now - self._asked < self._settings.mirror_retry:
            return []
        self._asked = now
        self._lacking.clear()
        return [Send(peer, CatchUp(self._source, known)) for peer in peers]

    def ask_on(self, peer: str, known: Known) -> list[Effect]:
        """For the rest of an answer that was too long."""
        return [Send(peer, CatchUp(self._source, known))]

    def lacks(self, peer: str) -> None:
        """``peer`` has answered and has nothing that would close a hole here."""
        self._lacking.add(peer)

    def in_vain(self, now: int, producer: str, peers: tuple[str, ...]) -> bool:
        """Something of ``producer`` is missing: whether it is clear by now that nobody has it."""
        if producer not in self._since and peers:
            # What peers answered before this came up does not count.
            self._since[producer], self._asked = now, BEGINNING
            self._lacking.clear()
            return False
        waited = now - self._since.get(producer, now)
        return self._lacking.issuperset(peers) or waited >= self._settings.gap_patience

    def over(self, producer: str) -> None:
        """Nothing of ``producer`` is missing any more."""
        self._since.pop(producer, None)


class Stock(msgspec.Struct, frozen=True):
    """What an entry point held beside its log when a peer asked: chunks not shown yet (``complete_from``:
    what a log that begins with one is complete from), and the next sequence expected of each producer."""

    waiting: tuple[Mirror, ...]
    complete_from: int
    taken: Known


def answer(source: str, known: Known, records: tuple[Record, ...], stock: Stock, limit: int) -> CaughtUp:
    """What a peer lacks of a log, then what was not shown yet; of more than ``limit`` bytes the beginning."""
    have = dict(known)
    mirrors: list[Mirror] = []
    complete_from: list[int] = []
    for record in records:
        sequence = record.sequence
        if sequence is None or sequence.until < have.get(sequence.producer, 0):
            continue
        mirrors.append(Mirror(source, record.rows, sequence, end(sequence)))
        complete_from.append(max(record.high, record.complete_from))
    mirrors += stock.waiting
    complete_from += [stock.complete_from] * len(stock.waiting)
    count = _fitting(mirrors, have, limit)
    more = count < len(mirrors)
    return CaughtUp(source, known, tuple(mirrors[:count]), tuple(complete_from[:count]), stock.taken, more)


def _fitting(mirrors: list[Mirror], have: dict[str, int], limit: int) -> int:
    """How many of them go into one message, at least one that has tuples the peer lacks."""
    bytes = 0
    news = False
    for count, mirror in enumerate(mirrors):
        bytes += HEADER + (0 if mirror.rows is None else int(mirror.rows.nbytes))
        if bytes > limit and news:
            return count
        news = news or mirror.sequence.until > have.get(mirror.sequence.producer, 0)
    return len(mirrors)
