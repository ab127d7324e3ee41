"""What an engine hands over, as bytes and back; and what is refused."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.log import handover
from anabranch.log.codec import Malformed
from anabranch.log.handover import Done, Piece, Poison
from anabranch.streams.batch import assemble, concat, ints, with_ids

SCHEMA = with_ids(pa.schema({"v": pa.string()}))
NUMBERS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(max_size=5)
MESSAGES = (
    st.builds(Piece, TEXTS, TEXTS, NUMBERS, TEXTS, NUMBERS, TEXTS, st.binary(max_size=40))
    | st.builds(Done, TEXTS, TEXTS, NUMBERS, *[st.dictionaries(TEXTS, NUMBERS, max_size=3) for _ in range(3)])
    | st.builds(Poison, TEXTS, TEXTS, TEXTS, NUMBERS, NUMBERS, NUMBERS, TEXTS)
)


@given(MESSAGES)
def test_a_message_comes_back_as_it_was(message: handover.Handover) -> None:
    assert handover.decode(handover.encode(message)) == message


@given(st.binary(max_size=100))
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed, match="no engine"):
        handover.decode(data)


def rows(count: int, size: int) -> pa.RecordBatch:
    numbers = ints(pa.array(range(count), pa.int64()))
    return assemble(numbers, numbers, numbers, [pa.array([f"{i:0{size}}" for i in range(count)])], SCHEMA)


@pytest.mark.parametrize(("count", "size"), [(1, 6_000_000), (9, 1_000_000), (3, 2_000_000), (1000, 5)])
def test_rows_are_cut_into_pieces_that_fit(count: int, size: int) -> None:
    batch = rows(count, size)
    cut = handover.pieces(batch)
    read = [handover.rows_of(Piece("f", "r", 0, "t", 0, "s", data), SCHEMA) for data in cut]
    assert concat(read) == batch
    assert all(
        len(data) <= handover.LARGEST or part.num_rows == 1 for data, part in zip(cut, read, strict=True)
    )


def test_rows_of_another_stream_are_refused() -> None:
    (data,) = handover.pieces(rows(3, 1))
    with pytest.raises(Malformed, match="piece 0 of f, s"):
        handover.rows_of(Piece("f", "r", 0, "t", 0, "s", data[:-8]), SCHEMA)
    assert handover.pieces(rows(1, 1).slice(0, 0)) == []
