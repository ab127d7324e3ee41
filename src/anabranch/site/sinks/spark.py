"""Results written by Spark, in numbered batches.

A batch is on this site's disk, with its number and the timestamp up to which it holds everything, before
Spark hears of it, and the next one is cut when it is known to be written. A life that finds a batch hands it
over again, the same rows with the same number, and goes on behind it. The sites are told only of what is
written, and keep the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import msgspec
import pyarrow as pa

from anabranch.engines.spark.orders import Deliver
from anabranch.site.config import ConfigError
from anabranch.site.sinks.cutting import Cutting
from anabranch.site.sinks.settings import ToSpark
from anabranch.site.sources.memory import place, recall, remember
from anabranch.site.spark_work import SINK, Channel, SparkWork
from anabranch.site.subscription import Receiver
from anabranch.streams.punctuation import BEGINNING, END

_UNTIL, _BATCH = b"until", b"batch"


class Written(msgspec.Struct, frozen=True):
    """All batches up to ``batch`` are, and they hold all up to ``until``; ``ended``: the stream has."""

    batch: int = -1
    until: int = BEGINNING
    ended: bool = False


class SparkSink:
    """``directory``: of this site, for what this sink must not forget."""

    def __init__(self, settings: ToSpark, directory: Path, work: SparkWork) -> None:
        problem = settings.problem()
        if problem is not None:
            raise ConfigError(f"sink {settings.application!r}: {problem}")
        self._settings = settings
        self._work = work
        name = quote(settings.application, safe="@ ")
        self._memory = directory / f"{name}.json"
        self._rows = directory / f"{name}.arrow"

    async def run(self, receive: Callable[[int | None], Receiver]) -> None:
        """Until the stream ends. ``receive`` makes a receiver, ordered, of what comes behind a timestamp."""
        written = recall(self._memory, Written) or Written()
        if written.ended:
            return
        with self._work.open(f"{SINK}{self._settings.application}") as channel:
            left = self._left(written)
            if left is not None:
                written = await self._hand_over(channel, left)

            async def write(table: pa.Table, until: int) -> None:
                nonlocal written
                cut = Written(written.batch + 1, until)
                await asyncio.to_thread(self._place, table, cut)
                written = await self._hand_over(channel, cut)

            receiver = receive(None if written.until == BEGINNING else written.until)
            receiver.keep(written.until)
            async with receiver:
                await Cutting(receiver, self._settings.every, self._settings.rows, write).run()
                remember(self._memory, msgspec.structs.replace(written, ended=True))
                receiver.keep(END)

    def _place(self, table: pa.Table, cut: Written) -> None:
        told = {_UNTIL: str(cut.until), _BATCH: str(cut.batch)}
        with pa.BufferOutputStream() as sink:
            with pa.ipc.new_file(sink, table.schema.with_metadata(told)) as writer:
                writer.write_table(table)
            place(self._rows, sink.getvalue())

    def _left(self, written: Written) -> Written | None:
        """The batch that an earlier life has cut and does not know to be written."""
        if not self._rows.exists():
            return None
        with pa.OSFile(str(self._rows)) as file, pa.ipc.open_file(file) as rows:
            told = rows.schema.metadata
        cut = Written(int(told[_BATCH]), int(told[_UNTIL]))
        return cut if cut.batch == written.batch + 1 else None

    async def _hand_over(self, channel: Channel, cut: Written) -> Written:
        """Returns when it is written."""
        settings = self._settings
        order = Deliver(
            channel.name,
            cut.batch,
            str(self._rows),
            settings.format,
            settings.options,
            settings.mode,
            settings.select,
        )
        await channel.say(order)
        while await channel.delivered() != cut.batch:
            pass
        remember(self._memory, cut)
        return cut
