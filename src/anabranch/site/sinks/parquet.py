"""Results as Parquet files, each tuple in exactly one, whatever crashes.

A file holds all tuples with timestamps behind the file before it and up to the one in its name, in order; it
appears whole, by renaming, and never changes. So the names say how far the directory is: a writer that comes
back goes on behind the last name, and what it had in memory comes again. The sites are told only of what is
in files, and keep the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from anabranch.site.sinks.cutting import Cutting
from anabranch.site.subscription import Receiver
from anabranch.streams.punctuation import BEGINNING, END

LAST = "_END"
_PREFIX = "until-"
_ZERO = 10**17
"""Added to timestamps in names, so that these sort as the times do also before 1970."""


class DirectoryTaken(RuntimeError):
    """Somebody else writes to the directory: the sentence says which."""


def name_of(until: int) -> str:
    """
    >>> name_of(1_700_000_000_000_000)
    'until-101700000000000000.parquet'
    """
    return f"{_PREFIX}{until + _ZERO:018d}.parquet"


def until_of(directory: Path) -> int | None:
    """Up to which timestamp the files of ``directory`` hold all; None: there is none yet."""
    names = [path.name for path in directory.glob(f"{_PREFIX}*.parquet")]
    return int(max(names)[len(_PREFIX) : -len(".parquet")]) - _ZERO if names else None


async def write(
    receive: Callable[[int | None], Receiver], directory: Path, every: float = 10.0, rows: int = 100_000
) -> None:
    """Until the stream ends, which ``_END`` in the directory says. ``receive`` makes a receiver, ordered, of
    what comes behind a timestamp."""
    directory.mkdir(parents=True, exist_ok=True)
    with _alone(directory):
        if (directory / LAST).exists():
            return
        for left in directory.glob(".*.parquet"):
            left.unlink()
        after = until_of(directory)
        receiver = receive(after)
        receiver.keep(BEGINNING if after is None else after)
        async with receiver:

            async def place(table: pa.Table, until: int) -> None:
                await asyncio.to_thread(
                    _place, directory, name_of(until), lambda path: pa.parquet.write_table(table, path)
                )

            await Cutting(receiver, every, rows, place).run()
            await asyncio.to_thread(_place, directory, LAST, lambda path: path.write_bytes(b""))
            receiver.keep(END)


def _place(directory: Path, name: str, make: Callable[[Path], object]) -> None:
    """A file appears whole, and is on disk before anybody is told."""
    new = directory / f".{name}"
    make(new)
    with new.open("rb") as written:
        os.fsync(written.fileno())
    os.replace(new, directory / name)
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    with (directory / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DirectoryTaken(f"{directory}: another writer is at work there; give each its own") from None
        yield
