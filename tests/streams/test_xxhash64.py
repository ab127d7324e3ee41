"""Spark's hash: the constants of its own suite (XXH64Suite), and what its types mean."""

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.streams.xxhash64 import xxhash64

PRIME = 2654435761


def spark_buffer() -> bytes:
    seed, data = PRIME, bytearray()
    for _ in range(101):
        data.append((seed >> 24) & 0xFF)
        seed = seed * seed % 2**64
    return bytes(data)


BUFFER = spark_buffer()


def hash_of(value, type_, seed=42):
    return int(xxhash64([pa.array([value], type_)], seed)[0])


def signed(bits):
    return bits - 2**64 if bits >= 2**63 else bits


@pytest.mark.parametrize(
    ("length", "seed", "expected"),
    [
        (0, 0, 0xEF46DB3751D8E999),
        (0, PRIME, 0xAC75FDA2929B17EF),
        (1, 0, 0x4FCE394CC88952D8),
        (1, PRIME, 0x739840CB819FA723),
        (4, 0, 0x9256E58AA397AEF1),
        (4, PRIME, 0x9D5FFDFB928AB4B),
        (8, 0, 0xF74CB1451B32B8CF),
        (8, PRIME, 0x9C44B77FBCC302C5),
        (14, 0, 0xCFFA8DB881BC3A3D),
        (14, PRIME, 0x5B9611585EFCC9CB),
        (101, 0, 0x0EAB543384F878AD),
        (101, PRIME, 0xCAA65939306F1E21),
    ],
)
def test_bytes_hash_as_in_sparks_suite(length, seed, expected):
    assert hash_of(BUFFER[:length], pa.binary(), seed) == signed(expected)


def test_numbers_hash_as_in_sparks_suite():
    assert hash_of(0x4B1FFF9E, pa.int32(), 0) == signed(0x9256E58AA397AEF1)
    assert hash_of(0x4B1FFF9E, pa.int32(), PRIME) == 0x9D5FFDFB928AB4B
    assert hash_of(signed(0xDD2F535E4B1FFF9E), pa.int64(), 0) == signed(0xF74CB1451B32B8CF)
    assert hash_of(signed(0xDD2F535E4B1FFF9E), pa.int64(), PRIME) == signed(0x9C44B77FBCC302C5)


def test_sparks_documented_example():
    columns = [pa.array(["Spark"]), pa.array([123], pa.int32()), pa.array([2], pa.int32())]
    assert xxhash64(columns).tolist() == [5602566077635097486]


@pytest.mark.parametrize(
    ("value", "type_", "as_value", "as_type"),
    [
        (True, pa.bool_(), 1, pa.int32()),
        (False, pa.bool_(), 0, pa.int32()),
        (-7, pa.int8(), -7, pa.int32()),
        (-7, pa.int16(), -7, pa.int32()),
        (datetime.date(1969, 12, 30), pa.date32(), -2, pa.int32()),
        (datetime.datetime(1970, 1, 1, 0, 0, 1), pa.timestamp("us", "UTC"), 1_000_000, pa.int64()),
        (1.5, pa.float64(), 0x3FF8000000000000, pa.int64()),
        (-0.0, pa.float64(), 0, pa.int64()),
        (float("nan"), pa.float64(), 0x7FF8000000000000, pa.int64()),
        (float("-inf"), pa.float64(), signed(0xFFF0000000000000), pa.int64()),
        (1.5, pa.float32(), 0x3FC00000, pa.int32()),
        (-0.0, pa.float32(), 0, pa.int32()),
        (float("nan"), pa.float32(), 0x7FC00000, pa.int32()),
        ("äß", pa.string(), "äß".encode(), pa.binary()),
    ],
)
def test_a_type_hashes_as_spark_says(value, type_, as_value, as_type):
    assert hash_of(value, type_) == hash_of(as_value, as_type)


def test_every_nan_is_one():
    bits = np.array([0x7FF8000000000000, 0x7FF0000000000001, -1], np.int64)
    hashes = xxhash64([pa.array(bits.view(np.float64))])
    assert len(set(hashes.tolist())) == 1


def test_null_leaves_the_hash_as_it_was():
    for type_ in (pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary()):
        assert hash_of(None, type_, seed=99) == 99


COLUMNS = st.one_of(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20).map(
        lambda values: pa.array(values, pa.int64())
    ),
    st.lists(st.none() | st.integers(-128, 127), min_size=1, max_size=20).map(
        lambda values: pa.array(values, pa.int8())
    ),
    st.lists(st.none() | st.floats(width=32), min_size=1, max_size=20).map(
        lambda values: pa.array(values, pa.float32())
    ),
    st.lists(st.none() | st.booleans(), min_size=1, max_size=20).map(
        lambda values: pa.array(values, pa.bool_())
    ),
    st.lists(st.none() | st.text(max_size=70), min_size=1, max_size=20).map(
        lambda values: pa.array(values, pa.string())
    ),
)


@given(COLUMNS, st.data())
def test_a_slice_hashes_as_the_rows_it_shows(column, data):
    start = data.draw(st.integers(0, len(column)))
    piece = column.slice(start)
    assert xxhash64([piece]).tolist() == xxhash64([column]).tolist()[start:]


@given(COLUMNS, COLUMNS)
def test_the_hash_of_one_column_is_the_seed_of_the_next(a, b):
    n = min(len(a), len(b))
    together = xxhash64([a.slice(0, n), b.slice(0, n)])
    for i in range(n):
        seed = int(xxhash64([a.slice(i, 1)])[0])
        assert xxhash64([b.slice(i, 1)], seed)[0] == together[i]


def test_a_type_without_a_hash_is_refused_by_name():
    with pytest.raises(TypeError, match="list<item: int64> cannot be part of a lineage id"):
        xxhash64([pa.array([[1]])])


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="of one length"):
        xxhash64([pa.array([1, 2]), pa.array([1])])
