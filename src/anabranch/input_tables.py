"""The tuples that producers send to a query's sources, as Arrow tables: checked, and cast without loss.

A row is a tuple, in the producer's order. ``ts`` is its timestamp; ``arrival``, where there is such a column,
is when it reaches its entry point, else it arrives at its timestamp. A timestamp without a time zone, or a
whole number (of microseconds), is UTC. Columns that the query does not declare are left out.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.graph import Graph, Source
from anabranch.types import ARROW

TIMESTAMP = ARROW["timestamp"]

EARLIEST, LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999, all that Spark's timestamps can hold."""


class InputError(ValueError):
    """Data that a source cannot take: the sentence names file, column and row, and says what to do."""


class HasGraph(Protocol):
    @property
    def graph(self) -> Graph: ...


def graph_of(query: Graph | HasGraph) -> Graph:
    return query if isinstance(query, Graph) else query.graph


def check_inputs(query: Graph | HasGraph, tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """One table for each source: ``ts``, the declared columns, and ``arrival`` where given."""
    graph = graph_of(query)
    sources = {source.name: source for source in graph.sources}
    check_names(sources, tables)
    return {name: conform(source, tables[name], f"source {name!r}") for name, source in sources.items()}


def check_names(
    sources: Mapping[str, Source], inputs: Mapping[str, object], fetched: Collection[str] = ()
) -> None:
    """Each source has an input, each input a source; but those that are ``fetched`` have none."""
    for name in inputs:
        if name not in sources:
            raise InputError(f"input {name!r}: the query has no such source; {_closest(name, list(sources))}")
    for name in sources:
        if name in fetched and name in inputs:
            raise InputError(f"input {name!r}: the sites fetch this source themselves; leave the input out")
        if name not in inputs and name not in fetched:
            raise InputError(f"source {name!r} has no input; give it one, an empty one if nothing comes")


def conform(source: Source, table: pa.Table, where: str) -> pa.Table:
    """The table with exactly the columns and types of ``source``; an InputError that begins with
    ``where``."""
    if not isinstance(table, pa.Table):
        raise InputError(f"{where}: expected a pyarrow Table, got {type(table).__name__}; convert it")
    wanted = column_types(source)
    if "arrival" not in wanted and "arrival" in table.column_names:
        wanted["arrival"] = TIMESTAMP
    columns = {
        name: lossless(_only(table, name, where), kind, f"{where}, column {name!r}")
        for name, kind in wanted.items()
    }
    clock = (
        ["ts"] if "arrival" not in table.column_names or "arrival" in _declared(source) else ["ts", "arrival"]
    )
    for name in clock:
        _check_times(columns[name], f"{where}, column {name!r}")
    _check_order(columns[clock[-1]], f"{where}, column {clock[-1]!r}")
    return pa.table(columns)


def arriving(source: Source, table: pa.Table, where: str) -> pa.Table:
    """What a producer sends: ``ts``, if the source gives it, then the declared columns, of exactly the types
    of ``source``, in the order in which they are; an InputError that begins with ``where``."""
    wanted = column_types(source)
    if source.timestamps == "entry" and "ts" not in _declared(source):
        del wanted["ts"]
    columns = {
        name: lossless(_only(table, name, where), kind, f"{where}, column {name!r}")
        for name, kind in wanted.items()
    }
    if source.timestamps == "source":
        _check_times(columns["ts"], f"{where}, column 'ts'")
    return pa.table(columns)


def _only(table: pa.Table, name: str, where: str) -> pa.ChunkedArray:
    """The one column called ``name``."""
    present = table.column_names.count(name)
    if present == 1:
        return table.column(name)
    problem = "is there twice; rename one" if present else f"is missing; {_closest(name, table.column_names)}"
    raise InputError(f"{where}: column {name!r} {problem}")


def column_types(source: Source) -> dict[str, pa.DataType]:
    """The columns a source's table must have."""
    return {"ts": TIMESTAMP, **{column.name: ARROW[column.type] for column in source.columns}}


def lossless(column: pa.ChunkedArray, kind: pa.DataType, where: str) -> pa.ChunkedArray:
    """The same values in another type; an InputError names the first row that would change."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.type == kind:
        return column
    if not _kin(column.type, kind):
        raise InputError(
            f"{where}: it is {column.type} but the query declares {kind}; cast it or declare its type"
        )
    return convert(column, kind, _cast, where)


def convert(
    column: pa.ChunkedArray,
    kind: pa.DataType,
    how: Callable[[pa.ChunkedArray, pa.DataType], pa.ChunkedArray],
    where: str,
) -> pa.ChunkedArray:
    """``how(column, kind)``; where that raises, an InputError names the first row to blame."""
    try:
        return how(column, kind)
    except (pa.ArrowException, ValueError):
        good, bad = 0, len(column)
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                how(column.slice(good, middle - good), kind)
                good = middle
            except (pa.ArrowException, ValueError):
                bad = middle
        # Python has no nanoseconds, Arrow's text has
        shown = column.slice(good, 1)
        value = (shown.cast(pa.string()) if pa.types.is_timestamp(column.type) else shown)[0].as_py()
        raise InputError(
            f"{where}, row {good + 1}: {value!s} cannot be {kind} without loss; "
            "correct it or declare another type"
        ) from None


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_timestamp(kind) and pa.types.is_integer(column.type):
        column = column.cast(pa.int64())
    out = column.cast(kind)
    if pa.types.is_floating(kind) and pa.types.is_floating(column.type):
        same = pc.fill_null(pc.equal(out.cast(column.type), column), True)
        if not pc.all(pc.or_(same, pc.fill_null(pc.is_nan(column), True))).as_py() and len(column):
            raise ValueError("rounded")
    return out


def _kin(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether values of one type can be values of the other at all."""
    t = pa.types
    if t.is_null(have):
        return True
    if t.is_timestamp(want):
        return bool(t.is_timestamp(have) or t.is_integer(have))
    families: tuple[Callable[[pa.DataType], bool], ...] = (
        lambda x: t.is_integer(x) or t.is_floating(x),
        lambda x: t.is_string(x) or t.is_large_string(x) or t.is_string_view(x),
        lambda x: t.is_binary(x) or t.is_large_binary(x) or t.is_binary_view(x) or t.is_fixed_size_binary(x),
        t.is_date,
        t.is_boolean,
    )
    return any(family(have) and family(want) for family in families)


def _check_times(column: pa.ChunkedArray, where: str) -> None:
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise InputError(f"{where}, row {row + 1}: it is null; give every tuple a time")
    values = column.cast(pa.int64()).to_numpy()
    outside = np.flatnonzero((values < EARLIEST) | (values > LATEST))
    if len(outside):
        row = outside[0]
        raise InputError(
            f"{where}, row {row + 1}: {values[row]} us is not in the years 1 to 9999; "
            f"times are microseconds since 1970"
        )


def _check_order(column: pa.ChunkedArray, where: str) -> None:
    values = column.cast(pa.int64()).to_numpy()
    earlier = np.flatnonzero(values[1:] < values[:-1])
    if len(earlier):
        raise InputError(
            f"{where}, row {earlier[0] + 2}: it is before the row above; rows are in the order in which "
            "tuples arrive, so sort them, or give a column 'arrival' that never decreases"
        )


def _declared(source: Source) -> list[str]:
    return [column.name for column in source.columns]


def _closest(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, 1)
    return f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names) or 'none'}"
