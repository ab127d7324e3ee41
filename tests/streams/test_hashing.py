"""Lineage ids equal the Spark expressions that their documentation names."""

import numpy as np
import pyarrow as pa
import pytest

from anabranch.streams.hashing import (
    content_ids,
    custom_ids,
    join_ids,
    name_hash,
    source_ids,
    union_ids,
    window_ids,
)
from anabranch.streams.xxhash64 import xxhash64

A = np.array([1, -5, 2**61])
B = np.array([7, 0, -(2**62)])
C = np.array([3, 3, 4])
HOSTS = pa.array(["rome", None, ""])
LOADS = pa.array([0.5, float("nan"), None])


def spark(*arguments):
    """xxhash64(1L, ...) and xxhash64(2L, ...); an int is a BIGINT literal."""
    n = len(A)
    columns = [pa.array([a] * n, pa.int64()) if isinstance(a, int) else pa.array(a) for a in arguments]
    return [xxhash64([pa.array([lane] * n, pa.int64()), *columns]).tolist() for lane in (1, 2)]


def same(ids, expected):
    return [part.tolist() for part in ids] == expected


def test_ids_are_the_documented_spark_expressions():
    where = name_hash("w")
    assert same(source_ids("s", "p", 40, 3), spark(name_hash("s"), name_hash("p"), np.array([40, 41, 42])))
    assert same(union_ids(A, B, 1), spark(1, A, B))
    assert same(join_ids(A, B, B, C), spark(A, B, B, C))
    assert same(custom_ids(A, B, C), spark(A, B, C))
    assert same(window_ids("w", A), spark(where, A))
    assert same(window_ids("w", A, [], B), spark(where, A, B))
    marks = HOSTS.is_null(), LOADS.is_null()
    assert same(window_ids("w", A, [HOSTS, LOADS]), spark(where, A, marks[0], HOSTS, marks[1], LOADS))
    expected = spark(name_hash("s"), A, marks[0], HOSTS, marks[1], LOADS, C)
    assert same(content_ids("s", A, [HOSTS, LOADS], C), expected)


def test_a_name_hashes_as_sparks_string():
    assert name_hash("Spark") == xxhash64([pa.array(["Spark"])])[0]


def test_ids_never_change():
    """Logs outlive releases: these values are the format."""
    hi, lo = source_ids("load", "probe-1", 0, 1)
    assert (hi[0], lo[0]) == (-4921413834441272284, 3164795148979030078)
    hi, lo = window_ids("worst", np.array([5_000_000]), [pa.array(["rome"])])
    assert (hi[0], lo[0]) == (-8666549736338996653, 6976824125363249314)


def test_nulls_in_different_columns_give_different_groups():
    ids = window_ids(
        "w",
        np.array([10, 10, 10]),
        [pa.array([None, 5, None], pa.int64()), pa.array([5, None, None], pa.int64())],
    )
    assert len(set(zip(*(part.tolist() for part in ids), strict=True))) == 3


def test_minus_zero_and_nan_are_one_group_each():
    ids = window_ids("w", np.array([10] * 4), [pa.array([0.0, -0.0, float("nan"), -float("nan")])])
    assert len(set(ids[0].tolist())) == 2


def test_the_two_halves_are_independent():
    hi, lo = source_ids("s", "p", 0, 1000)
    assert len(set((hi ^ lo).tolist())) == 1000


def test_nothing_in_nothing_out():
    none = np.empty(0, np.int64)
    hi, lo = window_ids("w", none, [pa.array([], pa.string()), pa.array([], pa.bool_())], none)
    assert len(hi) == len(lo) == 0


def test_ids_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="of one length"):
        union_ids(A, B[:2], 0)


def test_arrow_memory_and_numpy_memory_alike():
    frozen = np.frombuffer(A.tobytes(), np.int64)
    assert same(union_ids(frozen, B, 1), [part.tolist() for part in union_ids(A, B, 1)])
