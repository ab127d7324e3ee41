"""Partitions that follow each other, in the order of their names: the files of a directory.

A partition is a producer and its rows are the sequence, so a tuple's id is that of (partition, row). All of
them, by name and then by row, are one order: a tuple is late if one before it has a timestamp larger by more
than the lateness. The whole is one more producer, which brings no tuples: it promises what the order so far
allows for partitions to come, and never before the entry point holds the rows that the promise is made from.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from anabranch.graph import Source
from anabranch.site.intake import Intake, Lane
from anabranch.site.sources.memory import recall, remember
from anabranch.streams.batch import Batch, ints
from anabranch.streams.lateness import pieces, promises
from anabranch.streams.punctuation import BEGINNING

_ROWS = 20_000
"""Of a partition, before the whole promises anew."""


class Cursor(msgspec.Struct, frozen=True):
    """All partitions before ``name`` have been taken, and of that one ``rows``; ``promise`` is what the order
    allows before its first row, or, if it is ``done``, behind its last; ``high`` is the largest timestamp so
    far."""

    name: str = ""
    rows: int = 0
    promise: int = BEGINNING
    high: int = BEGINNING
    done: bool = True


class Successive:
    """``source`` at the entry point ``site``. Partitions are called ``kind`` and their name, the whole
    ``whole``. ``memory``: a file of this site's, for how far it is."""

    def __init__(
        self, source: Source, site: str, kind: str, whole: str, intake: Intake, memory: Path
    ) -> None:
        self.cursor = Cursor()
        self._source = source
        self._entries = (site,)
        self._kind = kind
        self._intake = intake
        self._memory = memory
        self._whole = self._lane(whole)

    def _lane(self, name: str) -> Lane:
        return self._intake.lane(self._source, name, self._entries)

    async def start(self) -> bool:
        """Goes on where it was. False if the log has lost what was in it: then everything is to be brought
        again, and what is still there counts once."""
        known = await self._whole.start()
        assert known is not None
        self.cursor = recall(self._memory, Cursor) or Cursor()
        lost = known.high < self.cursor.high
        if lost:
            self.cursor = Cursor()
        self._whole.go_on(0, known.promise)
        return not lost

    async def take(self, name: str, rows: Batch | None) -> None:
        """A whole partition: ``ts``, and the source's columns. Returns when all of it is safe."""
        cursor = self.cursor
        if cursor.name != name:
            cursor = Cursor(name, 0, cursor.promise, cursor.high, done=False)
        lane = self._lane(f"{self._kind} {name}")
        known = await lane.start()
        assert known is not None
        # The entry point knows; but it forgets what has been trimmed from its log when it starts again.
        forgotten = known.until == 0 and known.high >= cursor.high
        first = cursor.rows if forgotten else known.until
        lane.go_on(first, BEGINNING, cursor.high)
        behind = cursor.promise
        if rows is not None:
            ts = ints(rows.column(0))
            allowed = promises(ts, self._source.lateness, cursor.promise)
            behind = int(allowed[-1])
            while first < len(ts):
                end = min(first + _ROWS, len(ts))
                for a, b, promise in pieces(ts[first:end], self._source.lateness, int(allowed[first]), _ROWS):
                    await lane.offer(rows.slice(first + a, b - a), promise)
                await lane.safe()
                first = end
                high = max(cursor.high, int(ts[:end].max()))
                await self._promise(int(allowed[end]))
                self._save(msgspec.structs.replace(cursor, rows=end, high=high))
        await self._promise(behind)
        lane.end()
        await lane.safe()
        lane.drop()
        high = self.cursor.high if self.cursor.name == name else cursor.high
        self._save(Cursor(name, first, behind, high, done=True))

    async def end(self) -> None:
        """No more partitions, ever."""
        self._whole.end()
        await self._whole.safe()
        self._whole.drop()

    async def _promise(self, promise: int) -> None:
        if promise > self._whole.promise:
            self._whole.tell(promise)
            await self._whole.safe()

    def _save(self, cursor: Cursor) -> None:
        self.cursor = cursor
        remember(self._memory, cursor)
