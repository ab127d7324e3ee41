"""Aggregate functions over groups of rows, folded in row order: equal rows give equal bits."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.operators.text import spread
from anabranch.operators.vectors import Vector, bits

Ints = npt.NDArray[np.int64]
_NAN = np.iinfo(np.int64).max


def fold(function: str, args: list[Any], group: Ints, groups: int) -> Any:
    """One value a group: a vector, or for ``min``, ``max`` and their kin over text an Arrow array.

    ``args`` are the values of the rows: vectors or Arrow text; ``group`` says which group each row is in.
    """
    if function == "count":
        present = _present(args[0], len(group)) if args else None
        return _count(group if present is None else group[present], groups), None
    if function in ("sum", "avg", "stddev"):
        values, valid = args[0]
        values = np.broadcast_to(values, len(group))
        if valid is not None:
            valid = np.broadcast_to(valid, len(group))
            values, group = values[valid], group[valid]
        return _NUMERIC[function](values, group, groups)
    chosen = _first_extreme(args[-1], group, groups, least=function in ("min", "min_by"))
    return _take(args[0], chosen, len(group))


def _count(group: Ints, groups: int) -> Ints:
    return np.bincount(group, minlength=groups)


def _present(value: Any, rows: int) -> npt.NDArray[np.bool_] | None:
    if not isinstance(value, tuple):
        text = spread(value, rows)
        return bits(text.buffers()[0], text.offset, rows) if text.null_count else None
    return None if value[1] is None else np.broadcast_to(value[1], rows)


def _sum(values: npt.NDArray[Any], group: Ints, groups: int) -> Vector:
    if values.dtype == np.float64:
        total: npt.NDArray[Any] = np.bincount(group, values, groups)
    else:
        total = np.zeros(groups, np.int64)
        np.add.at(total, group, values)
    return total, _count(group, groups) > 0


def _avg(values: npt.NDArray[Any], group: Ints, groups: int) -> Vector:
    count = _count(group, groups)
    return np.bincount(group, values, groups) / np.maximum(count, 1), count > 0


def _stddev(values: npt.NDArray[Any], group: Ints, groups: int) -> Vector:
    count, squares = _moments(np.array(values), np.array(group), groups)
    return np.sqrt(squares / np.maximum(count - 1.0, 1.0)), count > 1.0


@numba.njit(cache=True)  # type: ignore[misc, untyped-decorator, unused-ignore]
def _moments(values: Any, group: Any, groups: int) -> Any:
    """Count and sum of squared distances from the mean, by Spark's recurrence (CentralMomentAgg)."""
    count = np.zeros(groups)
    mean = np.zeros(groups)
    squares = np.zeros(groups)
    for i in range(len(values)):
        g = group[i]
        count[g] += 1.0
        delta = values[i] - mean[g]
        step = delta / count[g]
        mean[g] += step
        squares[g] += delta * (delta - step)
    return count, squares


_NUMERIC = {"sum": _sum, "avg": _avg, "stddev": _stddev}


def _first_extreme(value: Any, group: Ints, groups: int, *, least: bool) -> Ints:
    """The first row of each group with the least or greatest value; the number of rows where all are null."""
    rows = len(group)
    keys = np.broadcast_to(_keys(value, rows), rows)
    present = _present(value, rows)
    if not least:
        keys = ~keys
    if present is None:
        where = np.arange(rows)
    else:
        where = np.flatnonzero(present)
        keys, group = keys[where], group[where]
    first = np.full(groups, rows)
    if groups == 1:
        if len(keys):
            first[0] = where[keys.argmin()]
        return first
    best = np.full(groups, _NAN)
    np.minimum.at(best, group, keys)
    winners = keys == best[group]
    np.minimum.at(first, group[winners], where[winners])
    return first


def _keys(value: Any, rows: int) -> Ints:
    """Integers in the order of the values."""
    if not isinstance(value, tuple):
        return np.asarray(pc.rank(spread(value, rows), tiebreaker="dense")).astype(np.int64)
    values = value[0]
    if values.dtype.kind != "f":
        return np.asarray(values, np.int64)
    wide = values.astype(np.float64) + 0.0
    order = wide.view(np.int64)
    return np.where(np.isnan(wide), _NAN, order ^ ((order >> 63) & _NAN))


def _take(value: Any, chosen: Ints, rows: int) -> Any:
    found = chosen < rows
    if not isinstance(value, tuple):
        return spread(value, rows).take(pa.array(chosen, mask=~found))
    values, valid = value
    index = np.where(found, chosen, 0)
    if len(values) != rows:
        index = np.zeros_like(index)
    taken = values[index]
    if valid is not None:
        found = found & (valid[index] if len(valid) == rows else valid)
    return taken, found
