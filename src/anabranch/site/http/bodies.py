"""What clients send, as rows of a source: JSON lines or an Arrow stream, checked before anything is used."""

from __future__ import annotations

import struct

import pyarrow as pa

from anabranch.graph import Source
from anabranch.input_tables import InputError, arriving, column_types
from anabranch.inputs import ndjson_table
from anabranch.streams.batch import Batch

NDJSON = ("application/x-ndjson", "application/ndjson", "application/jsonl")
ARROW = ("application/vnd.apache.arrow.stream",)

_RECORD_BATCH = 3
"""Of the kinds of message of an Arrow stream."""


def from_ndjson(data: bytes, source: Source, where: str) -> Batch | None:
    """The rows; None if there are none."""
    return _batch(ndjson_table(data, column_types(source), where), source, where)


def from_arrow(data: bytes, source: Source, most_rows: int, where: str) -> Batch | None:
    """Nothing that is small as it comes and large as it is used: no compression, no dictionaries, no
    views."""
    try:
        _look_at(data, most_rows, where)
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            for field in reader.schema:
                _check_plain(field, where)
            table = reader.read_all()
        table.validate(full=True)
    except InputError:
        raise
    except (pa.ArrowException, ValueError, OSError, struct.error, IndexError, OverflowError) as error:
        said = " ".join(str(error).split())
        raise InputError(
            f"{where}: not an Arrow stream ({said}); send what pyarrow.ipc.new_stream writes"
        ) from None
    return _batch(table, source, where)


def _batch(table: pa.Table, source: Source, where: str) -> Batch | None:
    table = arriving(source, table, where).combine_chunks()
    return table.to_batches()[0] if table.num_rows else None


def _check_plain(field: pa.Field, where: str) -> None:
    kind = field.type
    t = pa.types
    if t.is_dictionary(kind) or t.is_string_view(kind) or t.is_binary_view(kind) or t.is_nested(kind):
        raise InputError(f"{where}: column {field.name!r} is {kind}; send plain columns")


def _look_at(data: bytes, most_rows: int, where: str) -> None:
    rows = 0
    messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(data))
    while True:
        try:
            message = messages.read_next_message()
        except StopIteration:
            return
        header = _Table.root(message.metadata.to_pybytes())
        if header.number(1, "B") != _RECORD_BATCH:
            continue
        batch = header.table(2)
        if batch.has(3):
            raise InputError(f"{where}: it is compressed; send it uncompressed")
        rows += batch.number(0, "q")
        if rows > most_rows:
            raise InputError(f"{where}: more than {most_rows} rows at once; send them in several requests")


class _Table:
    """As much of a FlatBuffers table as tells what a message is. Fields have numbers, from 0."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._fields = at - struct.unpack_from("<i", data, at)[0]
        self._count = (struct.unpack_from("<H", data, self._fields)[0] - 4) // 2

    @staticmethod
    def root(data: bytes) -> _Table:
        return _Table(data, struct.unpack_from("<I", data, 0)[0])

    def _offset(self, field: int) -> int:
        if field >= self._count:
            return 0
        return int(struct.unpack_from("<H", self._data, self._fields + 4 + 2 * field)[0])

    def has(self, field: int) -> bool:
        return self._offset(field) != 0

    def number(self, field: int, kind: str) -> int:
        offset = self._offset(field)
        return int(struct.unpack_from(f"<{kind}", self._data, self._at + offset)[0]) if offset else 0

    def table(self, field: int) -> _Table:
        at = self._at + self._offset(field)
        return _Table(self._data, at + struct.unpack_from("<I", self._data, at)[0])
