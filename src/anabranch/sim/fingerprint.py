"""A digest of every message of a run: the same run, the same digest."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from anabranch.protocols.messages import CaughtUp, Message, Snapshot
from anabranch.protocols.records import Record
from anabranch.streams.batch import Batch, ids, timestamps

HEADER = 64
"""Bytes that a message takes beside its tuples."""


def size(message: Message) -> int:
    """Bytes of a message on a link."""
    if isinstance(message, CaughtUp):
        return HEADER + sum(size(mirror) for mirror in message.mirrors)
    if isinstance(message, Snapshot):
        return HEADER + len(message.state)
    rows = getattr(message, "rows", None)
    return HEADER if rows is None else HEADER + int(rows.nbytes)


class Fingerprint:
    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, now: int, sender: str, to: str, stream: str | None, content: Any) -> None:
        self._hash.update(f"{now} {sender} {to} {stream} ".encode())
        self._add(content)

    def _add(self, content: Any) -> None:
        if isinstance(content, Batch):
            if content.schema.names[:1] == ["_ts"]:
                for column in (timestamps(content), *ids(content)):
                    self._hash.update(column.tobytes())
            self._hash.update(str(content.num_rows).encode())
        elif isinstance(content, Record):
            header = (
                content.punctuation,
                content.complete_from,
                content.generation,
                content.previous,
                content.high,
            )
            self._hash.update(repr(header).encode())
            if content.rows is not None:
                self._add(content.rows)
        elif isinstance(content, msgspec.Struct):
            self._hash.update(type(content).__name__.encode())
            for field in content.__struct_fields__:
                self._add(getattr(content, field))
        elif isinstance(content, tuple):
            for item in content:
                self._add(item)
        else:
            self._hash.update(repr(content).encode())

    @property
    def hexdigest(self) -> str:
        return self._hash.hexdigest()
