"""A directory as a source: files that appear whole, in the order of their names, and never change.

Every entry point reads the directory by itself, yet equal tuples get equal ids and the same tuples are late
everywhere: files are partitions that follow each other (:mod:`anabranch.site.sources.successive`).

``_END`` in the directory says that no more files come: once all are read, the source ends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from anabranch.graph import Source
from anabranch.input_tables import InputError, arriving, column_types
from anabranch.inputs import read_table
from anabranch.site.config import ConfigError
from anabranch.site.intake import Intake
from anabranch.site.journal import Journal
from anabranch.site.sources.settings import Files
from anabranch.site.sources.successive import Successive
from anabranch.streams.batch import Batch

LAST = "_END"
SUFFIXES = (".parquet", ".csv", ".ndjson", ".jsonl")
_RETRY = 2.0


class Directory:
    """``source`` at the site ``site``, which must be an entry point of it. ``memory``: a file of this site's,
    for how far it is."""

    def __init__(
        self, settings: Files, source: Source, site: str, intake: Intake, memory: Path, journal: Journal
    ) -> None:
        if source.identity != "partition" or source.timestamps != "source":
            raise ConfigError(
                f"files of source {source.name!r}: several sites can read them alike only if the source has "
                'identity="partition" and timestamps="source"; define it so'
            )
        self._source = source
        self._directory = Path(settings.directory)
        self._poll = settings.poll
        self._journal = journal
        self._files = Successive(source, site, "file", f"files {source.name}", intake, memory)
        self._told: set[str] = set()
        self._seen: set[str] = set()

    async def run(self) -> None:
        """Until the directory has ended."""
        await self._files.start()
        cursor = self._files.cursor
        self._seen = {name for name in self._names() if name <= cursor.name}
        if not cursor.done and cursor.name:
            await self._read(self._directory / cursor.name)
        while True:
            for path in self._next_files():
                await self._read(path)
            if (self._directory / LAST).exists() and not any(self._next_files()):
                break
            await asyncio.sleep(self._poll)
        await self._files.end()

    def _names(self) -> list[str]:
        try:
            with os.scandir(self._directory) as entries:
                return sorted(entry.name for entry in entries if entry.is_file())
        except OSError as error:
            self._tell(str(self._directory), f"cannot be read ({error.strerror or error})")
            return []

    def _next_files(self) -> Iterator[Path]:
        """In the order of their names, behind the last one that was read."""
        for name in self._names():
            if name.startswith((".", "_")) or name in self._seen:
                continue
            if not name.endswith(SUFFIXES):
                self._tell(name, f"of what format? names end in {', '.join(SUFFIXES)}")
            elif name > self._files.cursor.name:
                yield self._directory / name
            else:
                self._tell(
                    name, f"came after {self._files.cursor.name} had been read; it is left out, rename it"
                )

    async def _read(self, path: Path) -> None:
        await self._files.take(path.name, await self._rows_of(path))
        self._seen.add(path.name)
        self._journal.count("files_read", source=self._source.name)

    async def _rows_of(self, path: Path) -> Batch | None:
        """A file that cannot be read is waited for: what follows it may not go first."""
        while True:
            try:
                table: pa.Table = await asyncio.to_thread(read_table, path, column_types(self._source))
                table = arriving(self._source, table, str(path)).combine_chunks()
                return table.to_batches()[0] if table.num_rows else None
            except InputError as error:
                if path.name not in self._told:
                    self._told.add(path.name)
                    self._event(str(error))
                await asyncio.sleep(_RETRY)

    def _tell(self, name: str, problem: str) -> None:
        if name not in self._told:
            self._told.add(name)
            self._event(f"{name}: {problem}")

    def _event(self, reason: str) -> None:
        self._journal.count("events", event="Unreadable")
        self._journal.write("Unreadable", source=self._source.name, reason=reason)
