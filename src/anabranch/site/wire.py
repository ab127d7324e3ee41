"""Messages between nodes as bytes, and back.

Nothing that comes in is used before it is known to be whole and of the query's own types.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from anabranch.log.codec import Malformed
from anabranch.protocols import messages as m

_ROWS = 1
"""The msgpack extension that holds rows, as an Arrow stream."""

_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        m.Submit,
        m.Ask,
        m.Accepted,
        m.Resend,
        m.Mirror,
        m.Mirrored,
        m.CatchUp,
        m.CaughtUp,
        m.Needed,
        m.Heartbeat,
        m.PlanOffer,
        m.SnapshotRequest,
        m.Snapshot,
    )
}


class _Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    sender: str
    kind: str
    body: msgspec.Raw


def _rows_out(value: Any) -> Any:
    if isinstance(value, pa.RecordBatch):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_batch(value)
        return msgspec.msgpack.Ext(_ROWS, sink.getvalue().to_pybytes())
    raise TypeError(f"a message cannot carry {type(value).__name__}")


def _rows_in(kind: type[Any], value: Any) -> Any:
    if kind is not pa.RecordBatch or not isinstance(value, pa.RecordBatch):
        raise ValueError(f"{type(value).__name__} where {kind.__name__} should be")
    return value


def _extension(code: int, data: memoryview) -> Any:
    if code != _ROWS:
        raise ValueError(f"extension {code} means nothing here")
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        rows = reader.read_next_batch()
    rows.validate(full=True)
    if not rows.num_rows:
        raise ValueError("rows that are none")
    return rows


_encoder = msgspec.msgpack.Encoder(enc_hook=_rows_out)
_envelopes = msgspec.msgpack.Decoder(_Envelope)
_decoders = {
    name: msgspec.msgpack.Decoder(kind, dec_hook=_rows_in, ext_hook=_extension)
    for name, kind in _KINDS.items()
}


def encode(sender: str, message: m.Message) -> bytes:
    body = msgspec.Raw(_encoder.encode(message))
    return _encoder.encode(_Envelope(sender, type(message).__name__, body))


def decode(data: bytes) -> tuple[str, m.Message]:
    """Who says it, and what."""
    try:
        envelope = _envelopes.decode(data)
        decoder = _decoders.get(envelope.kind)
        if decoder is None:
            raise Malformed(
                f"a message of kind {envelope.kind[:40]!r} from {envelope.sender[:40]!r}: unknown here"
            )
        message: m.Message = decoder.decode(envelope.body)
    except Malformed:
        raise
    except (
        msgspec.MsgspecError,
        pa.ArrowException,
        ValueError,
        OSError,
        StopIteration,
        RecursionError,
    ) as error:
        raise Malformed(f"{len(data)} bytes that are no message ({error}); nothing was done") from None
    return envelope.sender, message
