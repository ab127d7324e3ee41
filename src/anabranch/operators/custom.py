"""Custom: user Python, named ``package.module:name``, declared deterministic by whoever names it.

Without a window it is a function from batch to batch (user columns and ``ts`` in) that treats each row by
itself: one row out for each row in, or any number with a column ``_row`` that holds the index of the input
row. Timestamps stay; the id hashes the input's id and the ordinal among the rows made of it.

With a window it is a class: ``lift(row)`` makes a state of a tuple (a dict with ``ts``), ``merge(a, b)``
returns the state of both without changing either, ``final(state)`` the columns of the result as a dict.
States of a group in a window are merged in canonical order. ``remove``, Mortar's inverse of ``merge``, is not
called here: a window folded afresh has the same bits on every replica, whenever it started.

A tuple on which user code raises is poison: it yields nothing and is reported; the others are not affected.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.graph import Column, Custom, Graph, QueryError
from anabranch.operators.stateless import Stateless
from anabranch.streams.batch import Batch, Ints, assemble, concat, ids, timestamps, with_ids
from anabranch.streams.hashing import custom_ids
from anabranch.types import arrow_schema

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


class CustomKernel(Stateless):
    """The function form."""

    def __init__(self, operator: Custom, graph: Graph) -> None:
        super().__init__(operator.name)
        columns = graph.schema(operator.input)
        self.schema = with_ids(arrow_schema(graph.schema(operator.name)))
        self._function: Callable[[pa.RecordBatch], Any] = resolve(operator)
        self._input_names = ["ts", *(column.name for column in columns)]
        self._columns: tuple[Column, ...] = operator.columns
        self._types = [field.type for field in arrow_schema(operator.columns)]
        self._poison: list[Poison] = []

    def take_events(self) -> list[Poison]:
        """The poison found since the last call."""
        events, self._poison = self._poison, []
        return events

    def process(self, port: int, rows: Batch) -> Batch | None:
        try:
            return self._apply(rows)
        except Exception as error:
            if rows.num_rows == 1:
                (hi,), (lo,) = ids(rows)
                self._poison.append(
                    Poison(self.name, int(timestamps(rows)[0]), int(hi), int(lo), describe(error))
                )
                return None
        single = [self.process(port, rows.slice(i, 1)) for i in range(rows.num_rows)]
        made = [batch for batch in single if batch is not None]
        return concat(made) if made else None

    def _apply(self, rows: Batch) -> Batch | None:
        given = pa.RecordBatch.from_arrays([rows.column(0), *rows.columns[3:]], names=self._input_names)
        made = self._function(given)
        source, ordinal = _origins(made, rows.num_rows)
        if not len(source):
            return None
        user = [
            column if column.type == type_ else column.cast(type_)
            for column, type_ in zip(
                (_plain(made.column(column.name)) for column in self._columns), self._types, strict=True
            )
        ]
        hi, lo = ids(rows)
        return assemble(
            timestamps(rows)[source], *custom_ids(hi[source], lo[source], ordinal), user, self.schema
        )


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
