"""Lineage ids: Spark's ``xxhash64``, bit for bit, so that every engine gives the same tuple the same id.

An id is two hashes of the same values, told apart by a leading BIGINT literal: 1 for ``_hi``, 2 for
``_lo``. Each function below names the Spark expression it equals; ``source_hash`` there is ``xxhash64('the
name')``, a BIGINT literal.

A null leaves Spark's hash as it was, so that (null, 5) and (5, null) would be one. Wherever user columns
enter an id, each column ``a`` is therefore preceded by ``isnull(a)``. Timestamps are hashed as their
microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from anabranch.streams.batch import Ints
from anabranch.streams.xxhash64 import Lanes, begin, fold, fold_longs, xxhash64


@lru_cache(maxsize=4096)
def name_hash(name: str) -> int:
    """``xxhash64('name')``."""
    return int(xxhash64([pa.array([name], pa.string())])[0])


def source_ids(source: str, producer: str, first_sequence: int, n: int) -> tuple[Ints, Ints]:
    """Of ``n`` tuples in the producer's sequence: ``xxhash64(1L, source_hash, producer_hash, sequence)``."""
    sequence = np.arange(first_sequence, first_sequence + n, dtype=np.int64)
    lanes = begin(sequence, *_seeds(name_hash(source), name_hash(producer)))
    return lanes[0], lanes[1]


def union_ids(hi: Ints, lo: Ints, port: int) -> tuple[Ints, Ints]:
    """Of the tuples a Union takes in at ``port``: ``xxhash64(1L, port, _hi, _lo)``, the port a BIGINT."""
    lanes = begin(hi, *_seeds(port))
    fold_longs(lo, lanes)
    return lanes[0], lanes[1]


def join_ids(left_hi: Ints, left_lo: Ints, right_hi: Ints, right_lo: Ints) -> tuple[Ints, Ints]:
    """Of pairs: ``xxhash64(1L, l._hi, l._lo, r._hi, r._lo)``."""
    lanes = begin(left_hi, *_seeds())
    fold_longs(left_lo, lanes)
    fold_longs(right_hi, lanes)
    fold_longs(right_lo, lanes)
    return lanes[0], lanes[1]


def custom_ids(hi: Ints, lo: Ints, ordinal: Ints) -> tuple[Ints, Ints]:
    """Of the rows a Custom makes of one tuple: ``xxhash64(1L, _hi, _lo, ordinal)``, the ordinal a BIGINT."""
    lanes = begin(hi, *_seeds())
    fold_longs(lo, lanes)
    fold_longs(ordinal, lanes)
    return lanes[0], lanes[1]


def window_ids(
    operator: str, window: Ints, group: Sequence[pa.Array] = (), *numbers: Ints
) -> tuple[Ints, Ints]:
    """Of window results: ``xxhash64(1L, operator_hash, window, numbers..., isnull(a), a, isnull(b), b,
    ...)``.

    ``window`` is the window's end in microseconds or its number, ``a``, ``b``, ... are the group's columns.
    """
    lanes = begin(window, *_seeds(name_hash(operator)))
    for number in numbers:
        fold_longs(number, lanes)
    for column in group:
        fold(column, True, lanes)
    return lanes[0], lanes[1]


def content_ids(source: str, ts: Ints, columns: Sequence[pa.Array], occurrence: Ints) -> tuple[Ints, Ints]:
    """Of tuples told apart by content: ``xxhash64(1L, source_hash, ts, isnull(a), a, ..., occurrence)``.

    ``occurrence`` is 1 for the first arrival of a content on its branch, 2 for the second, and so on.
    """
    lanes = content_lanes(source, ts, columns)
    return occurrence_ids(lanes, occurrence)


def content_lanes(source: str, ts: Ints, columns: Sequence[pa.Array]) -> Lanes:
    """``content_ids`` without the occurrence."""
    lanes = begin(ts, *_seeds(name_hash(source)))
    for column in columns:
        fold(column, True, lanes)
    return lanes


def occurrence_ids(lanes: Lanes, occurrence: Ints) -> tuple[Ints, Ints]:
    """Completes ``content_lanes``, in place, to ``content_ids``."""
    fold_longs(occurrence, lanes)
    return lanes[0], lanes[1]


@lru_cache(maxsize=4096)
def _seeds(*constants: int) -> tuple[int, int]:
    """``xxhash64(1L, constants...)`` and ``xxhash64(2L, constants...)``."""
    first, second = (
        int(xxhash64([pa.array([value], pa.int64()) for value in (lane, *constants)])[0]) for lane in (1, 2)
    )
    return first, second
