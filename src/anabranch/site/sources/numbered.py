"""Rows that nothing tells apart: one site reads them, and numbers them itself as they come.

A batch is put on disk, with the number of its first row, before any of it is brought. So what of it has been
brought is known whenever this site begins again, and it is brought as it was, in whatever order it is read
the next time.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa

from anabranch.graph import Source
from anabranch.site.config import ConfigError
from anabranch.site.intake import Intake, promised_behind
from anabranch.site.sources.memory import place, recall, remember
from anabranch.streams.batch import Batch
from anabranch.streams.punctuation import BEGINNING


class Noted(msgspec.Struct, frozen=True):
    """Batch ``batch`` of ``run``: its first row has the number ``first``; ``promise`` is what holds before
    it. If it is not ``safe`` yet, its rows are on disk."""

    run: str = ""
    batch: int = -1
    first: int = 0
    rows: int = 0
    promise: int = BEGINNING
    high: int = BEGINNING
    safe: bool = True


class Numbered:
    """``source``, read here and brought to ``entries``. ``memory``: a file of this site's, for how far it is;
    beside it, the rows of a batch."""

    def __init__(self, source: Source, entries: tuple[str, ...], intake: Intake, memory: Path) -> None:
        self.noted = Noted()
        self._source = source
        self._memory = memory
        self._rows = memory.with_suffix(".arrow")
        self._lane = intake.lane(source, f"spark {source.name}", entries)

    async def start(self) -> None:
        """Goes on where it was, with what of the last batch is not safe."""
        known = await self._lane.start()
        assert known is not None
        noted = recall(self._memory, Noted)
        if noted is None and known.until > 0:
            raise ConfigError(
                f"source {self._source.name!r}: {known.until} of its tuples are known, and this site has "
                f"forgotten how far it has read it ({self._memory} is not there). Its rows have no identity "
                "of their own: reading them again would count them twice. Give the source another name to "
                "begin anew"
            )
        self.noted = noted = noted or Noted()
        until = noted.first + (noted.rows if noted.safe else 0)
        self._lane.go_on(max(known.until, until), max(known.promise, noted.promise), noted.high)
        if not noted.safe:
            with pa.OSFile(str(self._rows)) as file, pa.ipc.open_file(file) as kept:
                rows = kept.read_all().combine_chunks().to_batches()
            await self._bring(rows[0])

    def began(self, run: str) -> None:
        """This is the run whose batches come."""
        if run != self.noted.run:
            self._note(msgspec.structs.replace(self.noted, run=run, batch=-1))

    async def take(self, run: str, batch: int, rows: Batch | None) -> None:
        """Returns when all of it is safe; a batch that was taken is not taken again."""
        noted = self.noted
        if rows is None or (run == noted.run and batch <= noted.batch):
            return
        with pa.BufferOutputStream() as sink:
            with pa.ipc.new_file(sink, rows.schema) as writer:
                writer.write_batch(rows)
            place(self._rows, sink.getvalue())
        lane = self._lane
        self._note(Noted(run, batch, lane.next, rows.num_rows, lane.promise, lane.high, safe=False))
        await self._bring(rows)

    async def _bring(self, rows: Batch) -> None:
        """Of the batch that is noted, what has not been brought."""
        lane, noted = self._lane, self.noted
        promise = noted.promise
        if self._source.timestamps == "source":
            promise = promised_behind(self._source, rows, noted.promise)
        await lane.bring(rows, noted.promise, lane.next - noted.first)
        if promise > lane.promise:
            lane.tell(promise)
        await lane.safe()
        self._note(msgspec.structs.replace(noted, promise=lane.promise, high=lane.high, safe=True))

    def _note(self, noted: Noted) -> None:
        self.noted = noted
        remember(self._memory, noted)
