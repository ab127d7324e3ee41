"""Which rows belong together: rows that carry the same 128-bit id, such as the id of one group in one window.

The id hashes the group's values as Spark compares them (null is a group, NaN equals NaN, -0.0 equals 0.0), so
equal ids are equal groups.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import types

from anabranch.streams.batch import Ints
from anabranch.streams.compiled import INTS, READ_INTS, compiled


@compiled(types.UniTuple(INTS, 2), READ_INTS, READ_INTS)
def group_by_id(hi: Ints, lo: Ints) -> tuple[Ints, Ints]:
    """Numbers the distinct ids by first appearance: each row's number, and the first row of each number.

    >>> group_by_id(np.array([7, 8, 7]), np.array([1, 1, 1]))
    (array([0, 1, 0]), array([0, 1]))
    """
    n = len(hi)
    size = 4
    while size < 2 * n:
        size *= 2
    slots = np.full(size, -1, np.int64)
    codes = np.empty(n, np.int64)
    firsts = np.empty(n, np.int64)
    groups = 0
    for row in range(n):
        slot = lo[row] & (size - 1)
        while slots[slot] >= 0:
            first = firsts[slots[slot]]
            if hi[first] == hi[row] and lo[first] == lo[row]:
                break
            slot = (slot + 1) & (size - 1)
        if slots[slot] < 0:
            slots[slot] = groups
            firsts[groups] = row
            groups += 1
        codes[row] = slots[slot]
    return codes, firsts[:groups].copy()


def group_values(column: pa.Array, firsts: pa.Array) -> pa.Array:
    """The value that stands for each group, whichever of its equal values came first.

    >>> group_values(pa.array([7.0, -0.0, None]), pa.array([1, 2])).to_pylist()
    [0.0, None]
    """
    values = column.take(firsts)
    return pc.add(values, pa.scalar(0, values.type)) if pa.types.is_floating(values.type) else values


def places_in_runs(keys: Ints) -> Ints:
    """The place of each element in its run of equal elements.

    >>> places_in_runs(np.array([5, 5, 9]))
    array([0, 1, 0])
    """
    starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    lengths = np.diff(np.append(starts, len(keys)))
    return np.arange(len(keys)) - np.repeat(starts, lengths)
