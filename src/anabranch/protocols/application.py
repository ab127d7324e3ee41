"""An application: subscribes to an output at every site that has it, and receives each tuple once, on first
arrival or in order."""

from __future__ import annotations

from anabranch.protocols.effects import Deliver, Effect, Send
from anabranch.protocols.messages import Needed, Version
from anabranch.protocols.records import Record
from anabranch.protocols.rejoin import Rejoin
from anabranch.protocols.settings import Settings
from anabranch.streams.batch import Batch
from anabranch.streams.order import Sorter
from anabranch.streams.punctuation import BEGINNING, END


class Application:
    """``ordered``: tuples wait for the punctuation and come in canonical order."""

    def __init__(self, name: str, stream: str, ordered: bool, settings: Settings, now: int) -> None:
        self.name = name
        self.stream = stream
        self.rejoin = Rejoin(stream, name, settings, now)
        self.version: Version = (0, "")
        self._sorter = Sorter() if ordered else None

    @property
    def complete(self) -> bool:
        """The stream has ended, and everything has been delivered."""
        return self.rejoin.frontier.punctuation == END

    def connect(self, now: int, version: Version, sources: tuple[str, ...]) -> list[Effect]:
        self.version = version
        return self.rejoin.keep_only(now, sources)

    def on_record(self, now: int, source: str, position: int, record: Record) -> list[Effect]:
        rows, moved, effects = self.rejoin.record(now, source, position, record)
        moved = self.rejoin.settle(now, BEGINNING) or moved
        return effects + self._deliver(rows, moved)

    def _deliver(self, rows: Batch | None, moved: bool) -> list[Effect]:
        if self._sorter is not None:
            if rows is not None:
                self._sorter.add(rows)
            rows = self._sorter.release(self.rejoin.frontier.punctuation) if moved else None
        return [] if rows is None else [Deliver(rows)]

    def on_tick(self, now: int) -> list[Effect]:
        effects = self.rejoin.sweep(now)
        gap = self.rejoin.skip_gap(now)
        effects += gap
        if self.rejoin.settle(now, BEGINNING) or gap:
            effects += self._deliver(None, True)
        punctuation = self.rejoin.frontier.punctuation
        for source, reader in self.rejoin.readers.items():
            effects.append(Send(source, Needed(self.stream, punctuation, reader.position or 0, self.version)))
        return effects
