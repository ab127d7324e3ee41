"""Records as bytes, and back; and what is refused."""

import contextlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.log.codec import Malformed, decode, encode
from anabranch.protocols.records import Cursor, Record, Sequence
from anabranch.streams.batch import assemble, ints, with_ids
from anabranch.streams.punctuation import BEGINNING, END

SCHEMA = with_ids(pa.schema({"v": pa.int64(), "s": pa.string()}))
NUMBERS = st.integers(-(2**63), 2**63 - 1)
CURSORS = st.builds(Cursor, st.text(max_size=5), NUMBERS, NUMBERS, NUMBERS)
SEQUENCES = st.builds(Sequence, st.text(max_size=5), NUMBERS, NUMBERS, NUMBERS, NUMBERS)


def rows(count: int, null: bool = False) -> pa.RecordBatch:
    numbers = ints(pa.array(range(count), pa.int64()))
    strings = pa.array([None if null and i % 2 else str(i) for i in range(count)], pa.string())
    return assemble(numbers, numbers, numbers, [pa.array(numbers), strings], SCHEMA)


RECORDS = st.builds(
    Record,
    st.sampled_from([None, rows(1), rows(70, null=True), rows(9).slice(3, 4)]),
    NUMBERS,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.lists(CURSORS, max_size=3).map(tuple),
    st.none() | SEQUENCES,
    st.none() | st.binary(max_size=50),
    NUMBERS,
)


@given(RECORDS)
def test_a_record_comes_back_as_it_was(record: Record) -> None:
    assert decode(encode(record), SCHEMA, "out/s at paris") == record


@given(st.binary(max_size=200))
def test_what_is_no_record_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed, match="out/s at paris"):
        decode(data, SCHEMA, "out/s at paris")


@given(st.data())
def test_a_damaged_record_is_refused_or_read(data: st.DataObject) -> None:
    """Whatever a byte is changed to: no crash, and no rows that Arrow would not accept."""
    good = bytearray(encode(Record(rows(20, null=True), 5, BEGINNING, 1, 1, END)))
    good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Malformed):
        record = decode(bytes(good), SCHEMA, "out/s at paris")
        assert record.rows is None or record.rows.schema == SCHEMA


@pytest.mark.parametrize(
    "schema", [None, with_ids(pa.schema({"v": pa.string(), "s": pa.string()})), with_ids(pa.schema({}))]
)
def test_rows_of_another_stream_are_refused(schema: pa.Schema | None) -> None:
    with pytest.raises(Malformed):
        decode(encode(Record(rows(3), 5, BEGINNING, 1, 1, END)), schema, "out/s at paris")
