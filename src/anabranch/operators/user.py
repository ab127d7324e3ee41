"""The user's own Python in a Custom operator: found, called, and what it raises told apart row by row.

What engines share; it imports little, because Spark's workers import it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.nodes import Custom
from anabranch.streams.batch import Batch, Ints, ids, timestamps
from anabranch.types import Column, QueryError, arrow_schema

ROW = "_row"


class Poison(msgspec.Struct, frozen=True):
    """User code of ``operator`` raised ``error`` on this tuple."""

    operator: str
    ts: int
    hi: int
    lo: int
    error: str


def describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def resolve(operator: Custom) -> Any:
    """What ``operator.target`` names."""
    module_name, _, name = operator.target.partition(":")
    try:
        target: Any = importlib.import_module(module_name)
        for part in name.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError) as error:
        raise QueryError(
            f"operator '{operator.name}': cannot load '{operator.target}' ({error}); "
            "install the module on every site that runs the operator, and check the name."
        ) from error
    return target


def instance(operator: Custom) -> Any:
    """Of the class that ``operator``, which has a window, names."""
    user = resolve(operator)()
    for method in ("lift", "merge", "final"):
        if not callable(getattr(user, method, None)):
            raise QueryError(
                f"operator '{operator.name}': '{operator.target}' has no method '{method}'; "
                "with a window a Custom is a class with lift(row), merge(a, b) and final(state)."
            )
    return user


def as_given(rows: Batch, columns: tuple[Column, ...]) -> pa.RecordBatch:
    """``rows`` as user code sees them: ``ts`` and the user columns."""
    names = ["ts", *(column.name for column in columns)]
    return pa.RecordBatch.from_arrays([rows.column(0), *rows.columns[3:]], names=names)


class Made(NamedTuple):
    """What became of ``rows``: for each row made the row it comes from, its ordinal among those of the same
    row, and its columns."""

    rows: Batch
    source: Ints
    ordinal: Ints
    columns: list[pa.Array]


class RowFunction:
    """The function form of a Custom, called on batches of ``columns``."""

    def __init__(self, operator: Custom, columns: tuple[Column, ...]) -> None:
        self._operator = operator
        self._columns = columns
        self._function: Callable[[pa.RecordBatch], Any] = resolve(operator)
        self._types = [field.type for field in arrow_schema(operator.columns)]
        self._poison: list[Poison] = []

    def take_events(self) -> list[Poison]:
        """The poison found since the last call."""
        events, self._poison = self._poison, []
        return events

    def apply(self, rows: Batch) -> list[Made]:
        """All that is made of ``rows``; a row on which the function raises makes nothing, and others make
        what they make without it."""
        try:
            return self._apply(rows)
        except Exception as error:
            if rows.num_rows == 1:
                (hi,), (lo,) = ids(rows)
                ts = int(timestamps(rows)[0])
                self._poison.append(Poison(self._operator.name, ts, int(hi), int(lo), describe(error)))
                return []
        return [made for i in range(rows.num_rows) for made in self.apply(rows.slice(i, 1))]

    def _apply(self, rows: Batch) -> list[Made]:
        made = self._function(as_given(rows, self._columns))
        source, ordinal = _origins(made, rows.num_rows)
        if not len(source):
            return []
        columns = [
            column if column.type == type_ else column.cast(type_)
            for column, type_ in zip(
                (_plain(made.column(column.name)) for column in self._operator.columns),
                self._types,
                strict=True,
            )
        ]
        return [Made(rows, source, ordinal, columns)]


def _plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _origins(made: Any, inputs: int) -> tuple[Ints, Ints]:
    """For each row made: the input row it comes from, and its ordinal among those of the same input row."""
    if ROW not in made.schema.names:
        if made.num_rows != inputs:
            raise ValueError(
                f"it made {made.num_rows} rows of {inputs}; add a column '{ROW}' with the input row of each"
            )
        return np.arange(inputs), np.zeros(inputs, np.int64)
    column = _plain(made.column(ROW))
    if column.null_count:
        raise ValueError(f"a null in column '{ROW}'")
    source = column.cast(pa.int64()).to_numpy()
    if len(source) and (source.min() < 0 or source.max() >= inputs):
        raise ValueError(f"column '{ROW}' names a row outside 0..{inputs - 1}")
    order = np.argsort(source, kind="stable")
    ascending = source[order]
    ordinal = np.empty(len(source), np.int64)
    ordinal[order] = np.arange(len(source)) - np.searchsorted(ascending, ascending)
    return source, ordinal
