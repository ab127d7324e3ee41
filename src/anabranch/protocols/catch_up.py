"""How an entry point gets from its peers what its log lacks, and when it must give that up.

A hole in a producer's sequence that the producer will not send again is asked for at every peer. What all of
them lack is lost; a peer that does not answer is waited for, ``gap_patience`` long.
"""

from __future__ import annotations

from anabranch.protocols.effects import Effect, Send
from anabranch.protocols.messages import CatchUp, CaughtUp, Mirror
from anabranch.protocols.progress import end
from anabranch.protocols.records import Record
from anabranch.protocols.settings import Settings
from anabranch.streams.punctuation import BEGINNING, END

Known = tuple[tuple[str, int], ...]
"""For each producer, the next sequence expected."""


class CatchingUp:
    """What has been asked for, and which peers turned out not to have it."""

    def __init__(self, source: str, settings: Settings) -> None:
        self._source = source
        self._settings = settings
        self._asked = BEGINNING
        self._since: int | None = None
        self._lacking: set[str] = set()

    def ask(self, now: int, peers: tuple[str, ...], known: Known) -> list[Effect]:
        """What do the peers hold that this log lacks? Not asked again before they could have answered."""
        if now - self._asked < self._settings.mirror_retry:
            return []
        self._asked = now
        self._lacking.clear()
        return [Send(peer, CatchUp(self._source, known)) for peer in peers]

    def lacks(self, peer: str) -> None:
        """``peer`` has answered and has no more than is here."""
        self._lacking.add(peer)

    def in_vain(self, now: int, peers: tuple[str, ...]) -> bool:
        """Something is missing: whether it is clear by now that nobody has it."""
        if self._since is None and peers:
            # What peers answered before this came up does not count.
            self._since, self._asked = now, BEGINNING
            return False
        waited = 0 if self._since is None else now - self._since
        return self._lacking.issuperset(peers) or waited >= self._settings.gap_patience

    def over(self) -> None:
        """Nothing is missing any more."""
        self._since = None


def answer(
    source: str, known: Known, records: tuple[Record, ...], waiting: list[Mirror], taken: Known
) -> CaughtUp:
    """What a peer lacks of a log, and where it is complete from; then what is here but not shown yet."""
    have = dict(known)
    complete_from = END
    mirrors: list[Mirror] = []
    for record in records:
        sequence = record.sequence
        if sequence is None or sequence.until < have.get(sequence.producer, 0):
            continue
        if complete_from == END:
            complete_from = max(record.high, record.complete_from)
        mirrors.append(Mirror(source, record.rows, sequence, end(sequence)))
    return CaughtUp(source, known, complete_from, (*mirrors, *waiting), taken)
