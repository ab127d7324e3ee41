"""A record as bytes, and back: a header in msgpack, then the rows as an Arrow record batch.

Reader and writer know the schema of a stream from the query; only its fingerprint goes along. Whatever comes
in is checked before it is used: bytes from a network are never trusted to be what they should be.
"""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache

import msgspec
import pyarrow as pa

from anabranch.protocols.records import Cursor, Record, Sequence
from anabranch.streams.batch import Batch

_MAGIC = b"ABR1"
_ALIGNMENT = 64
_PREFIX = struct.Struct("<4sI")


class Malformed(ValueError):
    """Bytes that are not what they should be: the sentence says what, where and what to do."""


class _Header(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    punctuation: int
    complete_from: int
    generation: int
    previous: int
    high: int
    size: int
    cursors: tuple[Cursor, ...]
    sequence: Sequence | None
    state: bytes | None
    rows: int
    """The fingerprint of their schema; 0: none."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Header)


def encode(record: Record) -> bytes:
    """The record as one message of a log."""
    header = _encoder.encode(
        _Header(
            record.punctuation,
            record.complete_from,
            record.generation,
            record.previous,
            record.high,
            record.size,
            record.cursors,
            record.sequence,
            record.state,
            0 if record.rows is None else fingerprint(record.rows.schema),
        )
    )
    head = _PREFIX.pack(_MAGIC, len(header)) + header
    if record.rows is None:
        return head
    padding = b"\0" * (-len(head) % _ALIGNMENT)
    return b"".join((head, padding, record.rows.serialize()))


def decode(data: bytes | memoryview, schema: pa.Schema | None, where: str) -> Record:
    """What ``encode`` gave; ``schema`` of the stream's rows, None where it has none. ``where`` names the
    stream, and the site it is of, for whoever reads the refusal."""
    view = memoryview(data)
    try:
        magic, length = _PREFIX.unpack_from(view)
        start = _PREFIX.size
        if magic != _MAGIC or start + length > len(view):
            raise Malformed(f"{where}: {len(view)} bytes that are no record; look at who writes this stream")
        header = _decoder.decode(view[start : start + length])
    except (struct.error, msgspec.MsgspecError) as error:
        raise Malformed(f"{where}: a record that is damaged ({error}); look at who writes it") from None
    start += length
    rows = None
    if header.rows:
        if schema is None or fingerprint(schema) != header.rows:
            raise Malformed(f"{where}: rows of another stream or another query; is the query the same?")
        rows = read_rows(view[start + (-start % _ALIGNMENT) :], schema, where)
    return Record(
        rows,
        header.punctuation,
        header.complete_from,
        header.generation,
        header.previous,
        header.high,
        header.cursors,
        header.sequence,
        header.state,
        header.size,
    )


@lru_cache(256)
def fingerprint(schema: pa.Schema) -> int:
    """Never 0."""
    return zlib.crc32(schema.to_string(show_schema_metadata=False).encode()) + 1


def read_rows(data: memoryview, schema: pa.Schema, where: str) -> Batch:
    """The rows that ``data`` holds, of exactly this schema and valid to the last buffer."""
    try:
        rows = pa.ipc.read_record_batch(pa.py_buffer(data), schema)
        rows.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise Malformed(
            f"{where}: rows that are not of this stream ({error}); is the query the same?"
        ) from None
    if not rows.num_rows or any(rows.column(i).null_count for i in range(3)):
        raise Malformed(f"{where}: rows without timestamps or ids; look at who writes this stream")
    return rows
