"""How far the clients of an endpoint are, on disk: entry points forget a client when its tuples have been
trimmed from their logs and they start again.

A line for each answer. What is lost with the machine's memory is asked for at the entry points.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TextIO

import msgspec

from anabranch.streams.punctuation import BEGINNING

_MOST = 4 << 20
"""Bytes of the file before only the last line of each client is kept."""


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """A client's tuples before ``next`` are safe, and ``promise``; none has a timestamp larger than
    ``high``. It came here at turn ``turn``."""

    source: str
    producer: str
    next: int = 0
    promise: int = BEGINNING
    high: int = BEGINNING
    turn: int = 0


class Memory:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._standings: dict[tuple[str, str], Standing] = {}
        self._file: TextIO | None = None
        decoder = msgspec.json.Decoder(Standing)
        if path.is_file():
            for line in path.read_bytes().splitlines():
                try:
                    standing = decoder.decode(line)
                except msgspec.DecodeError:
                    # The last line of a life that was killed while it wrote.
                    continue
                self._standings[standing.source, standing.producer] = standing

    def get(self, source: str, producer: str) -> Standing:
        return self._standings.get((source, producer), Standing(source, producer))

    def of(self, source: str) -> list[Standing]:
        return [standing for (name, _), standing in self._standings.items() if name == source]

    def note(self, standing: Standing) -> None:
        self._standings[standing.source, standing.producer] = standing
        self._write(standing)

    def forget(self, source: str, producer: str) -> None:
        if self._standings.pop((source, producer), None) is not None:
            self.compact()

    def compact(self) -> None:
        """Only what is current stays, in a new file."""
        self.close()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        lines = [msgspec.json.encode(standing) + b"\n" for standing in self._standings.values()]
        new.write_bytes(b"".join(lines))
        os.replace(new, self._path)

    def _write(self, standing: Standing) -> None:
        if self._file is not None and self._file.tell() > _MOST:
            self.compact()
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a", encoding="utf-8", buffering=1)
        self._file.write(msgspec.json.encode(standing).decode() + "\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
