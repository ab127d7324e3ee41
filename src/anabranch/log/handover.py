"""What an engine of its own process hands to the agent, which alone writes the egress log.

An engine computes in numbered batches. The tasks of a batch send what they made as pieces; once all tasks are
through, the engine says that the batch is done, and with it which pieces count: a task that was tried twice
has sent its pieces twice, under two names. Only then does anything of the batch go into the egress log. The
engine calls a batch its own past only when ``Done`` has been answered; until then it may come again, with the
same number in the same run, and is then answered again and appended nothing twice.

Everything goes by request on the subject ``names.engine(query)`` of the site's own server. The answer is
``OK``, or a sentence that says what is wrong.

>>> decode(encode(Done("pairs", "5f1c", 7, {"0.3": 2}, {"pairs": 90}, {"load": 12}))).batch
7
"""

from __future__ import annotations

import msgspec
import pyarrow as pa

from anabranch.log.codec import Malformed, read_rows
from anabranch.streams.batch import Batch

OK = b"ok"

LARGEST = 4 << 20
"""Bytes of rows in one piece, at most, unless a single row is larger."""


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``fragment``: of which the engine runs ``run``. A run begins where the ingress log does;
    a process that takes it up again from its checkpoint goes on with the same run."""

    fragment: str
    run: str


class Piece(_Message, frozen=True, forbid_unknown_fields=True, tag="piece"):
    """Rows of an exported stream: piece ``number``, from 0, of what attempt ``task`` made of batch
    ``batch``."""

    batch: int
    task: str
    number: int
    stream: str
    rows: bytes


class Done(_Message, frozen=True, forbid_unknown_fields=True, tag="done"):
    """All of a batch has been sent: ``pieces`` says how many each attempt that counts has sent; attempts that
    sent none are left out. No later batch brings a row with a timestamp <= the punctuation of its stream;
    ``positions``: up to where, exclusive, the inputs have been read."""

    batch: int
    pieces: dict[str, int]
    punctuation: dict[str, int]
    positions: dict[str, int]


class Poison(_Message, frozen=True, forbid_unknown_fields=True, tag="poison"):
    """User code of ``operator`` raised ``error`` on this tuple. The same may be told again when a batch is
    computed again."""

    operator: str
    ts: int
    hi: int
    lo: int
    error: str


Handover = Piece | Done | Poison

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Handover)


def encode(message: Handover) -> bytes:
    return _encoder.encode(message)


def decode(data: bytes) -> Handover:
    """What ``encode`` gave, or :class:`Malformed`."""
    try:
        message: Handover = _decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Malformed(
            f"{len(data)} bytes that no engine hands over ({error}); look at who sends them"
        ) from None
    return message


def rows_of(piece: Piece, schema: pa.Schema) -> Batch:
    """The rows of a piece, of exactly ``schema`` (ids included), valid to the last buffer."""
    return read_rows(
        memoryview(piece.rows), schema, f"piece {piece.number} of {piece.fragment}, {piece.stream}"
    )


def pieces(rows: Batch) -> list[bytes]:
    """``rows`` as the ``rows`` of pieces, none larger than need be."""
    if not rows.num_rows:
        return []
    data = rows.serialize()
    if data.size <= LARGEST or rows.num_rows == 1:
        return [data.to_pybytes()]
    half = rows.num_rows // 2
    return [*pieces(rows.slice(0, half)), *pieces(rows.slice(half))]
