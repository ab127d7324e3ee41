"""A snapshot is restored whole or refused with a sentence."""

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.operators.state import SnapshotError, empty, pack, unpack


class Progress(msgspec.Struct, frozen=True):
    punctuation: int


class Other(msgspec.Struct, frozen=True):
    count: int


ROWS = pa.RecordBatch.from_pydict({"x": [1, None, 3], "s": ["a", "b", None]})
SAVED = pack("worst", Progress(-5), [ROWS, empty(ROWS.schema)])


def restored(snapshot, operator="worst", state=Progress, schemas=(ROWS.schema, ROWS.schema)):
    return unpack(snapshot, operator, state, schemas)


def test_what_was_packed_comes_back():
    state, (rows, none) = restored(SAVED)
    assert state == Progress(-5)
    assert rows.equals(ROWS)
    assert none.num_rows == 0
    assert none.schema.equals(ROWS.schema)


def test_a_slice_is_packed_without_what_is_around_it():
    _, (rows, _) = restored(pack("worst", Progress(0), [ROWS.slice(1, 1), ROWS]))
    assert rows.to_pylist() == [{"x": None, "s": "b"}]


@given(st.integers(0, len(SAVED) - 1), st.integers(1, 255))
def test_one_changed_byte_is_noticed(place, change):
    damaged = bytearray(SAVED)
    damaged[place] ^= change
    with pytest.raises(SnapshotError, match=r"operator 'worst' cannot restore this snapshot"):
        restored(bytes(damaged))


@given(st.binary() | st.integers(0, len(SAVED) - 1).map(lambda n: SAVED[:n]))
def test_garbage_is_refused(garbage):
    with pytest.raises(SnapshotError, match="damaged or no snapshot at all"):
        restored(garbage)


def test_the_snapshot_of_something_else_is_refused():
    with pytest.raises(SnapshotError, match="it is of operator 'worst'; hand it a snapshot of 'pairs'"):
        restored(SAVED, operator="pairs")
    with pytest.raises(SnapshotError, match="another version of the query"):
        restored(SAVED, state=Other)
    with pytest.raises(SnapshotError, match="2 tables instead of 1"):
        restored(SAVED, schemas=[ROWS.schema])
    with pytest.raises(SnapshotError, match="instead of"):
        restored(SAVED, schemas=[ROWS.schema, pa.schema({"x": pa.int64(), "t": pa.string()})])
