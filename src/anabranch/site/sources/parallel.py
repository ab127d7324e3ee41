"""Partitions that run side by side, each for itself: those of a Kafka topic.

A partition is a producer and its numbers are the sequence, so a tuple's id is that of (partition, number). It
has an order of its own: a tuple is late if one before it in its partition has a timestamp larger by more than
the lateness. No partition may be promised for by the others, not even before it is heard of. So all of them
are known beforehand, and one more producer without tuples stands for all: it speaks first in every life, and
promises the least of what the partitions have promised.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from anabranch.graph import Source
from anabranch.site.config import ConfigError
from anabranch.site.intake import Intake, Lane, promised_behind
from anabranch.site.sources.memory import recall, remember
from anabranch.streams.batch import Batch
from anabranch.streams.punctuation import BEGINNING

_AT_FIRST = BEGINNING + 1
"""A promise that holds nothing back, and makes the entry point know who gives it."""


class Missing(ValueError):
    """Rows are missing before those that a partition brings: the sentence says which."""


class Partition(msgspec.Struct, frozen=True):
    """The tuples before ``until`` are safe, and so is what is promised behind them."""

    until: int = 0
    promise: int = _AT_FIRST


class _Memory(msgspec.Struct, frozen=True):
    partitions: dict[str, Partition] = {}
    high: int = BEGINNING


class Parallel:
    """``partitions`` of ``source`` at the entry point ``site``. ``memory``: a file of this site's, for how
    far they are."""

    def __init__(
        self, source: Source, site: str, partitions: tuple[str, ...], intake: Intake, memory: Path
    ) -> None:
        self._source = source
        self._intake = intake
        self._memory = memory
        self._entries = (site,)
        self._whole = self._lane(f"partitions {source.name}")
        self._lanes = {name: self._lane(f"partition {name}") for name in partitions}
        self._high = BEGINNING

    def _lane(self, name: str) -> Lane:
        return self._intake.lane(self._source, name, self._entries)

    async def start(self) -> bool:
        """Goes on where it was. False if the log has lost what was in it: then everything is to be brought
        again, and what is still there counts once."""
        memory = recall(self._memory, _Memory) or _Memory()
        self._high = memory.high
        known = await self._whole.start()
        assert known is not None
        lost = known.high < memory.high
        self._whole.go_on(0, known.promise)
        await _promise(self._whole, _AT_FIRST)
        for name, lane in self._lanes.items():
            lost = not await self._go_on(lane, memory.partitions.get(name, Partition()), lost) or lost
        return not lost

    async def _go_on(self, lane: Lane, remembered: Partition, lost: bool) -> bool:
        known = await lane.start()
        assert known is not None
        until, promise = known.until, _AT_FIRST
        if known.until <= remembered.until and not lost:
            # The entry point forgets what has been trimmed from its log when it starts again.
            lost = 0 < known.until < remembered.until
            if not lost:
                until, promise = remembered.until, remembered.promise
        lane.go_on(until, known.promise)
        await _promise(lane, promise)
        return not lost

    async def take(self, rows: dict[str, tuple[int, Batch]]) -> None:
        """Of each partition the number of the first row, and consecutive rows: ``ts``, and the source's
        columns. What has been taken before is passed over. Returns when all of it is safe."""
        for name, (first, batch) in rows.items():
            lane = self._lanes.get(name)
            if lane is None:
                raise ConfigError(
                    f"source {self._source.name!r}: there is a partition {name!r}, and partitions names only "
                    f"{', '.join(self._lanes)}; name all there are, at all sites alike"
                )
            if first > lane.next:
                raise Missing(
                    f"source {self._source.name!r}: partition {name!r} goes on with number {first}, and "
                    f"{lane.next} has not come; numbers must be without holes, and those of its first row be "
                    "what begin says"
                )
            await self._bring(lane, first, batch)
        for lane in self._lanes.values():
            await lane.safe()
        await _promise(self._whole, min(lane.promise for lane in self._lanes.values()))
        self._high = max([self._high, *(lane.high for lane in self._lanes.values())])
        partitions = {name: Partition(lane.next, lane.promise) for name, lane in self._lanes.items()}
        remember(self._memory, _Memory(partitions, self._high))

    async def _bring(self, lane: Lane, first: int, rows: Batch) -> None:
        # The promise behind all, also those that are there already: it goes with the last word on them.
        promise = promised_behind(self._source, rows, lane.promise)
        await lane.bring(rows, skip=lane.next - first)
        if promise > lane.promise:
            lane.tell(promise)


async def _promise(lane: Lane, promise: int) -> None:
    """Unless it has promised as much."""
    if promise > lane.promise:
        lane.tell(promise)
        await lane.safe()
