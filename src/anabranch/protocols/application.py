"""An application: subscribes to an output at every site that has it, and receives each tuple once, on first
arrival or in order."""

from __future__ import annotations

from anabranch.plan import Plan
from anabranch.protocols.effects import Deliver, Effect, Report, Send
from anabranch.protocols.events import Gap
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
        self.carriers: tuple[str, ...] = ()
        """The sites that yield the stream, with a branch to here or not."""
        self.kept: int | None = None
        """Up to where it has all on disk, if it is one that keeps things: that is what it needs no more."""
        self._sorter = Sorter() if ordered else None
        self._released = BEGINNING

    @property
    def complete(self) -> bool:
        """The stream has ended, and everything has been delivered."""
        return self.rejoin.frontier.punctuation == END

    def begin_after(self, timestamp: int) -> None:
        """Only what has a later timestamp is received; to be said before anything is."""
        self.rejoin.frontier.restore(timestamp, timestamp)
        self.rejoin.filter.punctuate(timestamp)
        self._released = timestamp

    def connect(self, now: int, plan: Plan) -> list[Effect]:
        """Follows a plan, if it is later than the present one."""
        if (plan.epoch, plan.coordinator) <= self.version:
            return []
        self.version = (plan.epoch, plan.coordinator)
        self.carriers = plan.carriers(self.stream)
        branches = [b for b in plan.branches if b.target == self.name and b.stream == self.stream]
        return self.rejoin.keep_only(now, tuple(branch.source for branch in branches))

    def on_record(self, now: int, source: str, position: int, record: Record) -> list[Effect]:
        rows, _, effects = self.rejoin.record(now, source, position, record)
        effects += self._begin(now)
        return effects + self._deliver(rows)

    def _begin(self, now: int) -> list[Effect]:
        """Decides where the stream begins for this application; what came before is a gap."""
        if not self.rejoin.settle(now, BEGINNING):
            return []
        since = self.rejoin.frontier.complete_from
        return [] if since == BEGINNING else [Report(Gap(self.stream, self.name, BEGINNING, since))]

    def _deliver(self, rows: Batch | None) -> list[Effect]:
        if self._sorter is not None:
            if rows is not None:
                self._sorter.add(rows)
            rows = self._release()
        return [] if rows is None else [Deliver(rows)]

    def _release(self) -> Batch | None:
        """What is in order now: all up to the punctuation."""
        punctuation = self.rejoin.frontier.punctuation
        if self._sorter is None or punctuation == self._released:
            return None
        self._released = punctuation
        return self._sorter.release(punctuation)

    def on_tick(self, now: int) -> list[Effect]:
        effects = self.rejoin.sweep(now)
        gap = self.rejoin.skip_gap(now)
        effects += [*gap, *self._begin(now)]
        effects += self._deliver(None)
        punctuation = self.rejoin.frontier.punctuation
        if self.kept is not None:
            punctuation = min(punctuation, self.kept)
        for site in self.carriers:
            position = self.rejoin.position_at(site)
            effects.append(Send(site, Needed(self.stream, punctuation, position, self.version)))
        return effects
