"""A digest of every message of a run: the same run, the same digest."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import numpy as np

from anabranch.protocols.messages import CaughtUp, Message, Snapshot
from anabranch.protocols.records import HEADER
from anabranch.streams.xxhash64 import SPARK_SEED, fold


def size(message: Message) -> int:
    """Bytes of a message on a link."""
    if isinstance(message, CaughtUp):
        return HEADER + sum(size(mirror) for mirror in message.mirrors)
    if isinstance(message, Snapshot):
        return HEADER + len(message.state)
    rows = getattr(message, "rows", None)
    return HEADER if rows is None else HEADER + int(rows.nbytes)


def _columns(rows: Any) -> bytes:
    """A batch as the hashes of its rows, nulls and all columns included."""
    lanes = np.full((1, rows.num_rows), SPARK_SEED, np.int64)
    for column in rows.columns:
        fold(column, True, lanes)
    return lanes.tobytes()


class Fingerprint:
    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._encode = msgspec.msgpack.Encoder(enc_hook=_columns).encode

    def add(self, now: int, sender: str, to: str, stream: str | None, content: Any) -> None:
        self._hash.update(self._encode((now, sender, to, stream, type(content).__name__, content)))

    @property
    def hexdigest(self) -> str:
        return self._hash.hexdigest()
