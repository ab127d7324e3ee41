"""Aggregate functions over groups of rows, folded in row order: equal rows give equal bits."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.operators.text import spread
from anabranch.operators.vectors import bits

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
        values = _fit(values, len(group))
        if valid is not None:
            valid = _fit(valid, len(group))
            values, group = values[valid], group[valid]
        result, count = _NUMERIC[function](values, group, groups)
        enough = 2 if function == "stddev" else 1
        return result, None if enough == 1 and valid is None else count >= enough
    chosen = _first_extreme(args[-1], group, groups, least=function in ("min", "min_by"))
    return _take(args[0], chosen, len(group))


def _fit(values: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
    return values if len(values) == rows else np.broadcast_to(values, rows)


def _count(group: Ints, groups: int) -> Ints:
    return np.bincount(group, minlength=groups)


def _present(value: Any, rows: int) -> npt.NDArray[np.bool_] | None:
    """The rows that are not null; None: all of them."""
    if not isinstance(value, tuple):
        text = spread(value, rows)
        return bits(text.buffers()[0], text.offset, rows) if text.null_count else None
    return None if value[1] is None else _fit(value[1], rows)


def _sum(values: npt.NDArray[Any], group: Ints, groups: int) -> tuple[npt.NDArray[Any], Ints]:
    if values.dtype == np.float64:
        total: npt.NDArray[Any] = np.bincount(group, values, groups)
    else:
        total = np.zeros(groups, np.int64)
        np.add.at(total, group, values)
    return total, _count(group, groups)


def _avg(values: npt.NDArray[Any], group: Ints, groups: int) -> tuple[npt.NDArray[Any], Ints]:
    count = _count(group, groups)
    return np.bincount(group, values, groups) / count, count


def _stddev(values: npt.NDArray[Any], group: Ints, groups: int) -> tuple[npt.NDArray[Any], Ints]:
    count, squares = _moments(np.array(values), np.array(group), groups)
    return np.sqrt(squares / (count - 1)), count


@numba.njit(cache=True)  # type: ignore[misc, untyped-decorator, unused-ignore]
def _moments(values: Any, group: Any, groups: int) -> Any:
    """Count and sum of squared distances from the mean, by Spark's recurrence (CentralMomentAgg)."""
    count = np.zeros(groups, np.int64)
    mean = np.zeros(groups)
    squares = np.zeros(groups)
    for i in range(len(values)):
        g = group[i]
        count[g] += 1
        delta = values[i] - mean[g]
        step = delta / count[g]
        mean[g] += step
        squares[g] += delta * (delta - step)
    return count, squares


_NUMERIC = {"sum": _sum, "avg": _avg, "stddev": _stddev}


def _first_extreme(value: Any, group: Ints, groups: int, *, least: bool) -> Ints:
    """The first row of each group with the least or greatest value; the number of rows where all are null."""
    rows = len(group)
    keys = _fit(_keys(value, rows), rows)
    present = _present(value, rows)
    if not least:
        keys = ~keys
    where = None if present is None else np.flatnonzero(present)
    if where is not None:
        keys, group = keys[where], group[where]
    first = np.full(groups, rows)
    if groups > 1:
        best = np.full(groups, _NAN)
        np.minimum.at(best, group, keys)
        winners = np.flatnonzero(keys == best[group])
        np.minimum.at(first, group[winners], winners if where is None else where[winners])
    elif len(keys):
        least_key = keys.argmin()
        first[0] = least_key if where is None else where[least_key]
    return first


def _keys(value: Any, rows: int) -> Ints:
    """Integers in the order of the values."""
    if not isinstance(value, tuple):
        return np.asarray(pc.rank(spread(value, rows), tiebreaker="dense")).astype(np.int64)
    values = value[0]
    if values.dtype.kind != "f":
        return np.asarray(values, np.int64)
    wide = values.astype(np.float64) + 0.0  # no negative zero
    order = wide.view(np.int64)
    keys: Ints = order ^ ((order >> 63) & _NAN)
    keys[np.isnan(wide)] = _NAN
    return keys


def _take(value: Any, chosen: Ints, rows: int) -> Any:
    found = chosen < rows
    if not isinstance(value, tuple):
        return spread(value, rows).take(pa.array(chosen, mask=~found))
    values, valid = value
    if len(values) != rows:
        values, valid = np.repeat(values, rows), None if valid is None else np.repeat(valid, rows)
    if found.all():
        return values[chosen], None if valid is None else valid[chosen]
    index = np.where(found, chosen, 0)
    return values[index], found if valid is None else found & valid[index]
