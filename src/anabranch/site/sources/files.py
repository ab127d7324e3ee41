"""A directory as a source: files that appear whole, in the order of their names, and never change.

Every entry point reads the directory by itself, yet equal tuples get equal ids and the same tuples are late
everywhere. A file is a producer, its rows are the sequence, so a tuple's id is that of (file name, row). The
whole directory, by file name and then by row, is one order: a tuple is late if one before it has a timestamp
larger by more than the lateness. The directory itself is one more producer, which brings no tuples: it
promises what the order so far allows for files to come, and never before the entry point holds the rows that
the promise is made from.

``_END`` in the directory says that no more files come: once all are read, the source ends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from anabranch.graph import Source
from anabranch.input_tables import InputError, arriving, column_types
from anabranch.inputs import read_table
from anabranch.site.config import ConfigError
from anabranch.site.intake import Intake, Lane
from anabranch.site.journal import Journal
from anabranch.site.sources.settings import Files
from anabranch.streams.batch import Batch, ints
from anabranch.streams.lateness import pieces, promises
from anabranch.streams.punctuation import BEGINNING

LAST = "_END"
SUFFIXES = (".parquet", ".csv", ".ndjson", ".jsonl")
_ROWS = 20_000
"""Of a file, before the directory promises anew."""
_RETRY = 2.0


class Cursor(msgspec.Struct, frozen=True):
    """All files before ``file`` have been read, and of that one ``rows``; ``promise`` is what the order
    allows before its first row, or, if it is ``done``, behind its last; ``high`` is the largest timestamp so
    far."""

    file: str = ""
    rows: int = 0
    promise: int = BEGINNING
    high: int = BEGINNING
    done: bool = True


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
        self._entries = (site,)
        self._directory = Path(settings.directory)
        self._poll = settings.poll
        self._intake = intake
        self._memory = memory
        self._journal = journal
        self._cursor = Cursor()
        self._told: set[str] = set()
        self._seen: set[str] = set()

    async def run(self) -> None:
        """Until the directory has ended."""
        whole = self._lane(f"files {self._source.name}")
        known = await whole.start()
        assert known is not None
        self._cursor = self._load()
        if known.high < self._cursor.high:
            # The log has lost what was in it: everything is read again, and what is still there counts once.
            self._cursor = Cursor()
        self._seen = {name for name in self._names() if name <= self._cursor.file}
        whole.go_on(0, known.promise)
        if not self._cursor.done and self._cursor.file:
            await self._read(self._directory / self._cursor.file, whole)
        while True:
            for path in self._next_files():
                await self._read(path, whole)
            if (self._directory / LAST).exists() and not any(self._next_files()):
                break
            await asyncio.sleep(self._poll)
        whole.end()
        await whole.safe()
        whole.drop()

    def _lane(self, name: str) -> Lane:
        return self._intake.lane(self._source, name, self._entries)

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
            elif name > self._cursor.file:
                yield self._directory / name
            else:
                self._tell(name, f"came after {self._cursor.file} had been read; it is left out, rename it")

    async def _read(self, path: Path, whole: Lane) -> None:
        rows = await self._rows_of(path)
        cursor = self._cursor
        if cursor.file != path.name:
            cursor = Cursor(path.name, 0, cursor.promise, cursor.high, done=False)
        lane = self._lane(f"file {path.name}")
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
                await self._promise(whole, int(allowed[end]))
                self._save(msgspec.structs.replace(cursor, rows=end, high=high))
        await self._promise(whole, behind)
        lane.end()
        await lane.safe()
        lane.drop()
        self._seen.add(path.name)
        high = self._cursor.high if self._cursor.file == path.name else cursor.high
        self._save(Cursor(path.name, first, behind, high, done=True))
        self._journal.count("files_read", source=self._source.name)

    async def _promise(self, whole: Lane, promise: int) -> None:
        if promise > whole.promise:
            whole.tell(promise)
            await whole.safe()

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

    # --- how far it is

    def _load(self) -> Cursor:
        try:
            return msgspec.json.decode(self._memory.read_bytes(), type=Cursor)
        except (OSError, msgspec.DecodeError):
            return Cursor()

    def _save(self, cursor: Cursor) -> None:
        """For the next life; what it does not know it asks the entry point."""
        self._cursor = cursor
        self._memory.parent.mkdir(parents=True, exist_ok=True)
        new = self._memory.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(cursor))
        os.replace(new, self._memory)
