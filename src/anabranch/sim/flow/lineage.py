"""Which tuples of its inputs each tuple of a stream was made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.graph import Custom, Filter, Graph, Join, Map, Operator, Union
from anabranch.streams.batch import Ints, ints
from anabranch.streams.hashing import content_lanes, custom_ids, join_ids, union_ids

Rows = Ints | None
"""Positions in a stream; None: all, in order."""

Ids = tuple[Ints, Ints]


class Lineage(msgspec.Struct, frozen=True):
    """The tuples of a stream. ``made_of`` has, for each input of the operator, the positions there of what
    they were made of. Of a Join these are one each for every tuple; of Filter, Map, Union and Custom the
    tuples made of the first input come first, then those of the second, ...; of a window there are none, for
    it appears when its input's punctuation says so; of a source they are positions in ``Entrance.arrivals``.
    ``fresh``: the tuples that were not in an earlier lot of the same stream."""

    ts: Ints
    made_of: tuple[Rows, ...] = ()
    fresh: Rows = None


def trace(
    graph: Graph, streams: Mapping[str, pa.Table], sources: Mapping[str, tuple[Lineage, Ids]]
) -> dict[str, tuple[Lineage, Ids]]:
    """The lineage and the ids of every stream, from those of the sources and the tables of the ideal run."""
    found = dict(sources)
    for operator in graph.operators:
        inputs = [found[name] for name in operator.inputs]
        found[operator.name] = _made(operator, inputs, streams)
    return found


def _made(
    operator: Operator, inputs: list[tuple[Lineage, Ids]], streams: Mapping[str, pa.Table]
) -> tuple[Lineage, Ids]:
    ts, present = _times(streams[operator.name])
    match operator:
        case Filter() | Map():
            rows, made = _surviving(inputs[0][1], present)
            return Lineage(inputs[0][0].ts[rows], (rows,)), made
        case Union():
            return _united(inputs)
        case Custom(window=None):
            return _customised(inputs[0], present)
        case Join():
            return _joined(operator, inputs, streams, present)
    return Lineage(ts), present


def _united(inputs: list[tuple[Lineage, Ids]]) -> tuple[Lineage, Ids]:
    made = [union_ids(*ids, port) for port, (_, ids) in enumerate(inputs)]
    ts = np.concatenate([lineage.ts for lineage, _ in inputs])
    return Lineage(ts, (None,) * len(inputs)), _concatenated(made)


def _customised(given: tuple[Lineage, Ids], present: Ids) -> tuple[Lineage, Ids]:
    """A tuple may yield any number of others, told apart by their ordinal."""
    lineage, (hi, lo) = given
    found: list[Ints] = []
    ids: list[Ids] = []
    missing = len(present[0])
    while missing:
        rows, made = _surviving(custom_ids(hi, lo, np.full(len(hi), len(found), np.int64)), present)
        assert len(rows), "the ordinals of the tuples made of one begin at 0 and leave none out"
        found.append(rows)
        ids.append(made)
        missing -= len(rows)
    rows = np.concatenate(found) if found else np.empty(0, np.int64)
    return Lineage(lineage.ts[rows], (rows,)), _concatenated(ids)


def _joined(
    operator: Join, inputs: list[tuple[Lineage, Ids]], streams: Mapping[str, pa.Table], present: Ids
) -> tuple[Lineage, Ids]:
    (left, left_ids), (right, right_ids) = inputs
    keys = [
        _keys(operator, streams[name], ids) for name, (_, ids) in zip(operator.inputs, inputs, strict=True)
    ]
    i, j = _candidates(left.ts, keys[0], right.ts, keys[1], operator.within)
    rows, ids = _surviving(join_ids(*_taken(left_ids, i), *_taken(right_ids, j)), present)
    i, j = i[rows], j[rows]
    return Lineage(np.maximum(left.ts[i], right.ts[j]), (i, j)), ids


def _keys(operator: Join, table: pa.Table, wanted: Ids) -> Ints:
    """A hash of the ``on`` columns of each tuple: those that agree have the same."""
    if not operator.on:
        return np.zeros(len(wanted[0]), np.int64)
    columns = [_flat(table.column(name)) for name in operator.on]
    lanes = content_lanes(operator.name, np.zeros(table.num_rows, np.int64), columns)
    key: Ints = lanes[0][_places(wanted, _times(table)[1])]
    return key


def _candidates(left: Ints, left_keys: Ints, right: Ints, right_keys: Ints, within: int) -> Ids:
    """The pairs of equal keys less than ``within`` apart."""
    pairs: list[Ids] = []
    for key in np.intersect1d(left_keys, right_keys):
        mine, others = np.flatnonzero(left_keys == key), np.flatnonzero(right_keys == key)
        others = others[np.argsort(right[others], kind="stable")]
        times = right[others]
        first = np.searchsorted(times, left[mine] - within, side="right")
        count = np.maximum(np.searchsorted(times, left[mine] + within, side="left") - first, 0)
        nth = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        pairs.append((np.repeat(mine, count), others[np.repeat(first, count) + nth]))
    return _concatenated(pairs)


def _surviving(ids: Ids, present: Ids) -> tuple[Ints, Ids]:
    """Of tuples that might have been made, the positions and ids of those that were."""
    mask: npt.NDArray[np.bool_] = pc.is_in(_packed(ids), _packed(present)).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(mask)
    return rows, _taken(ids, rows)


def _places(ids: Ids, among: Ids) -> Ints:
    """Where each of ``ids`` stands ``among`` others."""
    places: Ints = pc.index_in(_packed(ids), _packed(among)).to_numpy(zero_copy_only=False).astype(np.int64)
    return places


def _packed(ids: Ids) -> pa.Array:
    """Ids as 16 bytes each."""
    values = pa.py_buffer(np.ascontiguousarray(np.stack(ids, axis=1)))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(ids[0]), [None, values])


def _taken(ids: Ids, rows: Ints) -> Ids:
    return ids[0][rows], ids[1][rows]


def _concatenated(ids: Sequence[Ids]) -> Ids:
    none = np.empty(0, np.int64)
    return np.concatenate([none, *(hi for hi, _ in ids)]), np.concatenate([none, *(lo for _, lo in ids)])


def _times(table: pa.Table) -> tuple[Ints, Ids]:
    """Timestamps and ids of a table of the ideal run."""
    ts, hi, lo = (ints(_flat(table.column(name))) for name in ("ts", "_hi", "_lo"))
    return ts, (hi, lo)


def _flat(column: pa.ChunkedArray) -> pa.Array:
    flat = column.combine_chunks()
    return flat.chunk(0) if isinstance(flat, pa.ChunkedArray) else flat
