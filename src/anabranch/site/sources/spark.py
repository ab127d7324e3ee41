"""A streaming source of Spark's as a source of the query.

Spark's driver reads it and hands it over batch by batch; a batch is answered when the entry point has all of
it safe. How far each producer is, the entry point knows, so what Spark brings again is passed over, be it
after a crash or from the very beginning, where Spark's checkpoint or this site's log is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.engines.spark.orders import NUMBER, PARTITION, TS, Fetch, schema_of
from anabranch.graph import Source
from anabranch.input_tables import arriving
from anabranch.site.config import ConfigError
from anabranch.site.intake import Intake
from anabranch.site.journal import Journal
from anabranch.site.sources.memory import recall, remember
from anabranch.site.sources.numbered import Numbered
from anabranch.site.sources.parallel import Missing, Parallel
from anabranch.site.sources.settings import FromSpark
from anabranch.site.sources.successive import Successive
from anabranch.site.spark_work import SOURCE, Brought, Channel, SparkWork
from anabranch.streams.batch import Batch, Ints, concat, ints


class _Reached(msgspec.Struct, frozen=True):
    """The run of Spark's that is read, and the last batch of it that was begun."""

    run: str = ""
    batch: int = -1


class SparkSource:
    """``source`` at the site ``site``, which must be one of its ``entries``. ``memory``: a file of this
    site's; others stand beside it. ``checkpoint``: a directory of its own."""

    def __init__(
        self,
        settings: FromSpark,
        source: Source,
        query: str,
        site: str,
        entries: tuple[str, ...],
        memory: Path,
        checkpoint: str,
        work: SparkWork,
        journal: Journal,
    ) -> None:
        problem = settings.problem() or settings.misfit(source)
        if problem is not None:
            raise ConfigError(f"source {source.name!r}: {problem}")
        self._settings = settings
        self._source = source
        self._query = query
        self._site = site
        self._entries = entries
        self._memory = memory
        self._checkpoint = checkpoint
        self._work = work
        self._journal = journal
        self._anew = False
        """Whether Spark's checkpoint is to be thrown away: the log has lost what came before it."""

    async def run(self, intake: Intake) -> None:
        """Until something fails; then it is to be run again, over a new intake."""
        settings, source = self._settings, self._source
        with self._work.open(f"{SOURCE}{source.name}", schema_of(source.columns)) as channel:
            if not settings.id:
                await self._read_alone(channel, Numbered(source, self._entries, intake, self._memory))
            elif settings.names is None:
                names = "partition", f"partitions {source.name}"
                successive = Successive(source, self._site, *names, intake, self._memory)
                await self._read_in_turn(channel, successive)
            else:
                parallel = Parallel(source, self._site, settings.names, intake, self._memory)
                await self._read_side_by_side(channel, parallel)

    async def _read_alone(self, channel: Channel, numbered: Numbered) -> None:
        await numbered.start()
        numbered.began(await self._start(channel, numbered.noted.run))
        while True:
            brought = await channel.brought()
            rows = [rows for task in brought.tasks for rows in task]
            given = self._given(concat(rows)) if rows else None
            await numbered.take(brought.run, brought.batch, given)
            channel.safe()

    async def _read_side_by_side(self, channel: Channel, parallel: Parallel) -> None:
        reached = self._reached(await parallel.start())
        run = await self._start(channel, reached.run)
        self._note(_Reached(run))
        while True:
            brought = await channel.brought()
            rows = {
                name: (int(numbers[0]) - self._settings.first(name), batch)
                for name, numbers, batch in await self._partitions(brought)
            }
            try:
                await parallel.take(rows)
            except Missing:
                # If it is so from the beginning as well, the source is not as it should be.
                self._anew = run == reached.run
                raise
            channel.safe()

    async def _read_in_turn(self, channel: Channel, successive: Successive) -> None:
        reached = self._reached(await successive.start())
        run = await self._start(channel, reached.run)
        last = successive.cursor.name
        while True:
            brought = await channel.brought()
            # A batch that was begun before, or a run from the beginning, brings again what has been taken.
            again = run != reached.run or brought.batch <= reached.batch
            self._note(_Reached(run, brought.batch))
            for name, numbers, rows in await self._partitions(brought):
                cursor = successive.cursor
                if name > cursor.name or (name == cursor.name and not cursor.done):
                    await self._take_whole(successive, name, numbers, rows)
                elif name > last or not again:
                    self._tell_behind(name, cursor.name)
            channel.safe()

    async def _take_whole(self, successive: Successive, name: str, numbers: Ints, rows: Batch) -> None:
        if numbers[0] != 0:
            raise ConfigError(
                f"source {self._source.name!r}: partition {name!r} begins with number {numbers[0]}; one that "
                "follows others must come whole, in one batch, and begin with 0. If they run side by side, "
                "name them in partitions"
            )
        await successive.take(name, rows)

    def _tell_behind(self, name: str, last: str) -> None:
        reason = f"partition {name!r} came after {last!r} had been read; it is left out, rename it"
        self._journal.count("events", event="Unreadable")
        self._journal.write("Unreadable", source=self._source.name, reason=reason)

    # --- the query

    async def _start(self, channel: Channel, run: str) -> str:
        """The run that is under way then: this one, or a new one."""
        settings, source = self._settings, self._source
        number = settings.id[1] if len(settings.id) > 1 else None
        fetch = Fetch(
            channel.name,
            self._query,
            source.name,
            source.columns,
            settings.format,
            settings.options,
            settings.schema,
            settings.select,
            settings.id[0] if settings.id else None,
            number,
            settings.timestamp if source.timestamps == "source" else None,
            settings.every,
            self._checkpoint,
            run,
            bool(settings.id),
        )
        await channel.say(fetch)
        return (await channel.started()).run

    def _reached(self, held: bool) -> _Reached:
        """``held``: whether the log holds all that it is known to have held."""
        anew, self._anew = self._anew or not held, False
        return (None if anew else recall(self._runs, _Reached)) or _Reached()

    def _note(self, reached: _Reached) -> None:
        remember(self._runs, reached)

    @property
    def _runs(self) -> Path:
        return self._memory.with_suffix(".run.json")

    # --- its rows

    def _given(self, rows: Batch) -> Batch:
        """As a producer gives them: without what says which they are."""
        table = pa.Table.from_batches([rows]).rename_columns({TS: "ts"})
        table = arriving(self._source, table, f"source {self._source.name!r}")
        return concat(table.to_batches())

    async def _partitions(self, brought: Brought) -> list[tuple[str, Ints, Batch]]:
        """Each partition's rows in the order of their numbers, without holes, and the numbers."""
        return await asyncio.to_thread(lambda: list(self._in_order(brought)))

    def _in_order(self, brought: Brought) -> Iterator[tuple[str, Ints, Batch]]:
        if len(self._settings.id) == 1:
            parts = _as_read(brought, self._source.name)
        else:
            parts = list(_sorted([rows for task in brought.tasks for rows in task]))
        for name, rows in sorted(parts):
            numbers = ints(rows.column(NUMBER))
            holes = np.flatnonzero(np.diff(numbers) != 1)
            if len(holes):
                at = int(holes[0])
                raise ConfigError(
                    f"source {self._source.name!r}: in partition {name!r}, number {numbers[at + 1]} comes "
                    f"behind {numbers[at]}; the second column of id must number its rows without holes, and "
                    "each once"
                )
            yield name, numbers, self._given(rows)


def _sorted(batches: list[Batch]) -> Iterator[tuple[str, Batch]]:
    """By partition, and within it by number."""
    if not batches:
        return
    rows = concat(batches)
    order = pc.sort_indices(rows, [(PARTITION, "ascending"), (NUMBER, "ascending")])
    rows = rows.take(order)
    lengths = pc.run_end_encode(rows.column(PARTITION), run_end_type=pa.int64())
    first = 0
    for name, end in zip(lengths.values.to_pylist(), lengths.run_ends.to_pylist(), strict=True):
        yield name, rows.slice(first, end - first)
        first = end


def _as_read(brought: Brought, source: str) -> list[tuple[str, Batch]]:
    """Rows numbered as Spark reads them: those of a partition must all be of one task."""
    parts: dict[str, Batch] = {}
    for task in brought.tasks:
        at = concat(task).schema.get_field_index(NUMBER)
        for name, rows in _sorted([_numbered(concat(task), at)]):
            if name in parts:
                raise ConfigError(
                    f"source {source!r}: Spark reads partition {name!r} in several pieces, whose order "
                    "nobody knows; raise spark.sql.files.maxPartitionBytes in the site's conf of Spark above "
                    "the size of a file, or name a second column of id"
                )
            parts[name] = _numbered(rows, at)
    return list(parts.items())


def _numbered(rows: Batch, at: int) -> Batch:
    return rows.set_column(at, NUMBER, pa.array(np.arange(rows.num_rows)))
