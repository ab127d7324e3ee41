"""The state of a kernel as bytes: a JSON header and Arrow IPC, with a checksum; never pickled code.

>>> class Progress(msgspec.Struct, frozen=True):
...     punctuation: int
>>> rows = pa.RecordBatch.from_pydict({"x": [1, 2]})
>>> saved = pack("worst", Progress(7), [rows])
>>> unpack(saved, "worst", Progress, [rows.schema])[0]
Progress(punctuation=7)
>>> unpack(saved, "pairs", Progress, [rows.schema])
Traceback (most recent call last):
anabranch.operators.state.SnapshotError: operator 'pairs' cannot restore this snapshot: \
it is of operator 'worst'; hand it a snapshot of 'pairs'
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TypeVar

import msgspec
import pyarrow as pa

from anabranch.streams.batch import Batch

MAGIC = b"ANBS1\n"

State = TypeVar("State", bound=msgspec.Struct)


class SnapshotError(ValueError):
    """A snapshot that cannot be restored: the sentence says of which operator and why."""


class _Header(msgspec.Struct, frozen=True):
    operator: str
    state: msgspec.Raw
    sizes: tuple[int, ...]


def pack(operator: str, state: msgspec.Struct, batches: Sequence[Batch]) -> bytes:
    """``state`` and ``batches`` of ``operator`` as bytes."""
    streams = [_to_ipc(batch) for batch in batches]
    header = msgspec.json.encode(
        _Header(operator, msgspec.Raw(msgspec.json.encode(state)), tuple(len(s) for s in streams))
    )
    body = len(header).to_bytes(4, "little") + header + b"".join(streams)
    return MAGIC + zlib.crc32(body).to_bytes(4, "little") + body


def unpack(
    snapshot: bytes, operator: str, state: type[State], schemas: Sequence[pa.Schema]
) -> tuple[State, list[Batch]]:
    """What was packed, or a :class:`SnapshotError`: nothing of a damaged snapshot is used."""
    header, body = _open(snapshot, operator)
    if header.operator != operator:
        raise SnapshotError(
            f"operator '{operator}' cannot restore this snapshot: it is of operator '{header.operator}'; "
            f"hand it a snapshot of '{operator}'"
        )
    try:
        decoded = msgspec.json.decode(header.state, type=state)
        if len(header.sizes) != len(schemas):
            raise ValueError(f"it holds {len(header.sizes)} tables instead of {len(schemas)}")
        batches, at = [], 0
        for size, schema in zip(header.sizes, schemas, strict=True):
            batches.append(_from_ipc(body[at : at + size], schema))
            at += size
    except (msgspec.MsgspecError, pa.ArrowException, OSError, ValueError) as error:
        raise SnapshotError(
            f"operator '{operator}' cannot restore this snapshot: {error}; "
            "it was taken by another version of the query, so start the operator without it"
        ) from error
    return decoded, batches


def _open(snapshot: bytes, operator: str) -> tuple[_Header, bytes]:
    start = len(MAGIC)
    body = snapshot[start + 4 :]
    if snapshot[:start] != MAGIC or zlib.crc32(body).to_bytes(4, "little") != snapshot[start : start + 4]:
        raise SnapshotError(
            f"operator '{operator}' cannot restore this snapshot: its {len(snapshot)} bytes are damaged or "
            "no snapshot at all; fetch it again or start the operator without it"
        )
    end = 4 + int.from_bytes(body[:4], "little")
    return msgspec.json.decode(body[4:end], type=_Header), body[end:]


def _to_ipc(batch: Batch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def _from_ipc(stream: bytes, schema: pa.Schema) -> Batch:
    batch = pa.ipc.open_stream(pa.py_buffer(stream)).read_next_batch()
    if not batch.schema.equals(schema):
        raise ValueError(f"its columns are {batch.schema.names} instead of {schema.names}, or differ in type")
    return batch


def empty(schema: pa.Schema) -> Batch:
    """No rows of ``schema``."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
