"""Spark's ``xxhash64``, bit for bit, over Arrow columns.

Mirrors ``org.apache.spark.sql.catalyst.expressions.XXH64``, and for the types ``XxHash64Function``: the
hash of one column is the seed of the next, and a null leaves it as it was.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.streams.batch import Ints
from anabranch.streams.compiled import (
    BOOL,
    INT,
    LANES,
    READ_BYTES,
    READ_INT32S,
    READ_INTS,
    compiled,
    inlined,
)

SPARK_SEED = 42

P1 = np.uint64(0x9E3779B185EBCA87)
P2 = np.uint64(0xC2B2AE3D27D4EB4F)
P3 = np.uint64(0x165667B19E3779F9)
P4 = np.uint64(0x85EBCA77C2B2AE63)
P5 = np.uint64(0x27D4EB2F165667C5)

Bytes = npt.NDArray[np.uint8]
Lanes = npt.NDArray[np.int64]
"""Hashes so far: one row a hash, one column a tuple."""

_NO_BYTES = np.empty(0, np.uint8)


def xxhash64(columns: Sequence[pa.Array], seed: int = SPARK_SEED) -> Ints:
    """Spark's ``xxhash64(columns...)``.

    >>> xxhash64([pa.array(["Spark"]), pa.array([123], pa.int32()), pa.array([2], pa.int32())])
    array([5602566077635097486])
    """
    lanes = np.full((1, len(columns[0])), seed, np.int64)
    for column in columns:
        fold(column, False, lanes)
    first: Ints = lanes[0]
    return first


def fold(column: pa.Array, mark_nulls: bool, lanes: Lanes) -> None:
    """Each hash so far becomes the seed of the column's; the null marks come before the values."""
    n = len(column)
    if n != lanes.shape[1]:
        raise ValueError("the columns of which lineage ids are made must be of one length")
    if n == 0:
        return
    kind, offset, buffers = column.type.id, column.offset, column.buffers()
    valid = _NO_BYTES if buffers[0] is None else np.frombuffer(buffers[0], np.uint8)
    if kind in _LONGS:
        values = np.frombuffer(buffers[1], np.int64, n, offset * 8)
        _fold_nullable_longs(values, valid, offset, mark_nulls, kind == pa.lib.Type_DOUBLE, lanes)
    elif kind in _INTS:
        narrow = np.frombuffer(buffers[1], _INTS[kind], n, offset * (column.type.bit_width // 8))
        values32 = narrow.astype(np.int32, copy=False)
        _fold_ints(values32, valid, offset, mark_nulls, kind == pa.lib.Type_FLOAT, lanes)
    elif kind in _BYTES:
        offsets = np.frombuffer(buffers[1], np.int32, n + 1, offset * 4)
        data = np.frombuffer(buffers[2], np.uint8) if buffers[2] else _NO_BYTES
        _fold_bytes(offsets, data, valid, offset, mark_nulls, lanes)
    elif kind == pa.lib.Type_BOOL:
        _fold_bools(np.frombuffer(buffers[1], np.uint8), valid, offset, mark_nulls, lanes)
    else:
        raise TypeError(
            f"a column of type {column.type} cannot be part of a lineage id: Spark's xxhash64 is known here "
            "for boolean, the integers, float, double, string, binary, date and timestamp; cast the column "
            "to one of these"
        )


_LONGS = (pa.lib.Type_INT64, pa.lib.Type_DOUBLE, pa.lib.Type_TIMESTAMP)
_INTS: dict[int, type[np.generic]] = {
    pa.lib.Type_INT8: np.int8,
    pa.lib.Type_INT16: np.int16,
    pa.lib.Type_INT32: np.int32,
    pa.lib.Type_DATE32: np.int32,
    pa.lib.Type_FLOAT: np.int32,
}
_BYTES = (pa.lib.Type_STRING, pa.lib.Type_BINARY)


@inlined
def _rotate(x: np.uint64, bits: int) -> np.uint64:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@inlined
def _finish(h: np.uint64) -> np.int64:
    h ^= h >> np.uint64(33)
    h *= P2
    h ^= h >> np.uint64(29)
    h *= P3
    h ^= h >> np.uint64(32)
    return np.int64(h)


@inlined
def _hash_int(value: int, seed: int) -> np.int64:
    h = np.uint64(seed) + P5 + np.uint64(4)
    h ^= (np.uint64(value) & np.uint64(0xFFFFFFFF)) * P1
    h = _rotate(h, 23) * P2 + P3
    return _finish(h)


@inlined
def _hash_long(value: int, seed: int) -> np.int64:
    h = np.uint64(seed) + P5 + np.uint64(8)
    h ^= _rotate(np.uint64(value) * P2, 31) * P1
    h = _rotate(h, 27) * P1 + P4
    return _finish(h)


@inlined
def _word(data: Bytes, at: int, size: int) -> np.uint64:
    word = np.uint64(0)
    for i in range(size):
        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return word


@inlined
def _round(v: np.uint64, word: np.uint64) -> np.uint64:
    return _rotate(v + word * P2, 31) * P1


@inlined
def _merge(h: np.uint64, v: np.uint64) -> np.uint64:
    return (h ^ (_rotate(v * P2, 31) * P1)) * P1 + P4


@inlined
def _hash_bytes(data: Bytes, at: int, end: int, seed: int) -> np.int64:
    length = end - at
    s = np.uint64(seed)
    if length >= 32:
        v1, v2, v3, v4 = s + P1 + P2, s + P2, s, s - P1
        while at + 32 <= end:
            v1 = _round(v1, _word(data, at, 8))
            v2 = _round(v2, _word(data, at + 8, 8))
            v3 = _round(v3, _word(data, at + 16, 8))
            v4 = _round(v4, _word(data, at + 24, 8))
            at += 32
        h = _rotate(v1, 1) + _rotate(v2, 7) + _rotate(v3, 12) + _rotate(v4, 18)
        h = _merge(_merge(_merge(_merge(h, v1), v2), v3), v4)
    else:
        h = s + P5
    h += np.uint64(length)
    while at + 8 <= end:
        h ^= _rotate(_word(data, at, 8) * P2, 31) * P1
        h = _rotate(h, 27) * P1 + P4
        at += 8
    if at + 4 <= end:
        h ^= _word(data, at, 4) * P1
        h = _rotate(h, 23) * P2 + P3
        at += 4
    while at < end:
        h ^= np.uint64(data[at]) * P5
        h = _rotate(h, 11) * P1
        at += 1
    return _finish(h)


@inlined
def _is_valid(valid: Bytes, i: int) -> bool:
    return bool(valid.shape[0] == 0 or (valid[i >> 3] >> (i & 7)) & 1 == 1)


@compiled(LANES, READ_INTS, INT, INT)
def begin(values: Ints, seed_hi: int, seed_lo: int) -> Lanes:
    """Two hashes of BIGINTs that are never null, each from a seed of its own."""
    n = values.shape[0]
    lanes = np.empty((2, n), np.int64)
    for i in range(n):
        lanes[0, i] = _hash_long(values[i], seed_hi)
        lanes[1, i] = _hash_long(values[i], seed_lo)
    return lanes


@compiled(INT, READ_INTS, LANES)
def fold_longs(values: Ints, lanes: Lanes) -> int:
    """Folds BIGINTs that are never null."""
    if values.shape[0] != lanes.shape[1]:
        raise ValueError("the arrays of which lineage ids are made must be of one length")
    for i in range(lanes.shape[1]):
        lanes[0, i] = _hash_long(values[i], lanes[0, i])
        lanes[1, i] = _hash_long(values[i], lanes[1, i])
    return 0


@compiled(INT, READ_INTS, READ_BYTES, INT, BOOL, BOOL, LANES)
def _fold_nullable_longs(
    values: Ints, valid: Bytes, offset: int, mark: bool, double: bool, lanes: Lanes
) -> int:
    for i in range(values.shape[0]):
        here = _is_valid(valid, offset + i)
        value = values[i]
        if double:
            size = value & 0x7FFFFFFFFFFFFFFF
            if size == 0:
                value = 0
            elif size > 0x7FF0000000000000:
                value = 0x7FF8000000000000
        for lane in range(lanes.shape[0]):
            h = lanes[lane, i]
            if mark:
                h = _hash_int(0 if here else 1, h)
            lanes[lane, i] = _hash_long(value, h) if here else h
    return 0


@compiled(INT, READ_INT32S, READ_BYTES, INT, BOOL, BOOL, LANES)
def _fold_ints(
    values: npt.NDArray[np.int32],
    valid: Bytes,
    offset: int,
    mark: bool,
    real: bool,
    lanes: Lanes,
) -> int:
    for i in range(values.shape[0]):
        here = _is_valid(valid, offset + i)
        value = int(values[i])
        if real:
            size = value & 0x7FFFFFFF
            if size == 0:
                value = 0
            elif size > 0x7F800000:
                value = 0x7FC00000
        for lane in range(lanes.shape[0]):
            h = lanes[lane, i]
            if mark:
                h = _hash_int(0 if here else 1, h)
            lanes[lane, i] = _hash_int(value, h) if here else h
    return 0


@compiled(INT, READ_BYTES, READ_BYTES, INT, BOOL, LANES)
def _fold_bools(bits: Bytes, valid: Bytes, offset: int, mark: bool, lanes: Lanes) -> int:
    for i in range(lanes.shape[1]):
        here = _is_valid(valid, offset + i)
        value = (bits[(offset + i) >> 3] >> ((offset + i) & 7)) & 1
        for lane in range(lanes.shape[0]):
            h = lanes[lane, i]
            if mark:
                h = _hash_int(0 if here else 1, h)
            lanes[lane, i] = _hash_int(value, h) if here else h
    return 0


@compiled(INT, READ_INT32S, READ_BYTES, READ_BYTES, INT, BOOL, LANES)
def _fold_bytes(
    offsets: npt.NDArray[np.int32],
    data: Bytes,
    valid: Bytes,
    offset: int,
    mark: bool,
    lanes: Lanes,
) -> int:
    for i in range(lanes.shape[1]):
        here = _is_valid(valid, offset + i)
        start, end = int(offsets[i]), int(offsets[i + 1])
        for lane in range(lanes.shape[0]):
            h = lanes[lane, i]
            if mark:
                h = _hash_int(0 if here else 1, h)
            lanes[lane, i] = _hash_bytes(data, start, end, h) if here else h
    return 0
