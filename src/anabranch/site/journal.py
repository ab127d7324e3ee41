"""What a process tells about itself: one line of JSON for each thing worth knowing, and counters."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import msgspec

from anabranch.protocols.events import Event

MOST = 64 << 20
"""Bytes of a file before it is put aside; one such is kept."""

MOST_WORDS = 8 << 20
"""Bytes of what a process says beside its journal, likewise."""

MOST_A_SECOND = 10
"""Events of one kind that are written; the rest is only counted."""

Labels = tuple[tuple[str, str], ...]


class Journal:
    """Lines go to ``path``; without one, only events, to standard error. ``told``: what every line says
    besides."""

    def __init__(self, path: Path | None = None, **told: Any) -> None:
        self.counts: Counter[tuple[str, Labels]] = Counter()
        self._path = path
        self._told = told
        self._file: TextIO | None = None
        self._second = 0
        self._written: Counter[str] = Counter()
        """Events of each kind in this second."""

    def count(self, name: str, by: int = 1, **labels: str) -> None:
        self.counts[name, tuple(labels.items())] += by

    def event(self, event: Event, **told: Any) -> None:
        """An event of the protocols: counted, and written with all it says, unless there are too many."""
        kind = type(event).__name__
        self.count("events", event=kind)
        second = int(time.monotonic())
        if second != self._second:
            self._second = second
            self._written.clear()
        self._written[kind] += 1
        if self._written[kind] <= MOST_A_SECOND:
            fields: dict[str, Any] = msgspec.structs.asdict(event)
            self._line(kind, {**told, **fields})

    def write(self, what: str, **fields: Any) -> None:
        if self._path is not None:
            self._line(what, fields)

    def _line(self, what: str, fields: dict[str, Any]) -> None:
        line = {"time": round(time.time(), 6), "what": what, **self._told, **fields}
        self._open().write(msgspec.json.encode(line, enc_hook=str).decode() + "\n")

    def total(self, name: str) -> int:
        """A counter, whatever its labels."""
        return sum(count for (each, _), count in self.counts.items() if each == name)

    def _open(self) -> TextIO:
        if self._path is None:
            return sys.stderr
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a", encoding="utf-8", buffering=1)
        elif self._file.tell() > MOST:
            self._file.close()
            self._path.replace(self._path.with_suffix(".old"))
            self._file = self._path.open("a", encoding="utf-8", buffering=1)
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def words_to(path: Path) -> BinaryIO:
    """For a process that is about to be started: what it says is added to ``path``, unless that is too long
    by now and is put aside. The file stays the same: who still has it open goes on writing there."""
    if path.is_file() and path.stat().st_size > MOST_WORDS:
        shutil.copyfile(path, path.with_suffix(f"{path.suffix}.old"))
        os.truncate(path, 0)
    return path.open("ab")
