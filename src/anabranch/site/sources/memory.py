"""What a source remembers for the site's next life, in a file of its own. What it does not know, it asks the
entry point."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


def recall(path: Path, kind: type[T]) -> T | None:
    """None if nothing is remembered."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None


def remember(path: Path, what: msgspec.Struct) -> None:
    """It takes the place of what was remembered before, as a whole."""
    place(path, msgspec.json.encode(what))


def place(path: Path, data: bytes) -> None:
    """A file that appears whole, and is on disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
