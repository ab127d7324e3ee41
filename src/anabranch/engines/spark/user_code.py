"""User code of Custom operators in Spark's Python workers, and where its failures are told.

These functions run in ``mapInArrow``: Arrow batches in, Arrow batches out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa

from anabranch.log import handover, names
from anabranch.log.blocking import Server
from anabranch.log.handing import hand_over
from anabranch.nodes import Custom
from anabranch.operators.user import Poison, RowFunction, as_given, describe, instance
from anabranch.streams.batch import HI, LO, TIMESTAMP, TS, Batch, ints, with_ids
from anabranch.types import Column, arrow_schema

ORDINAL = "_ordinal"
MEMBERS = "_members"


class Reports(msgspec.Struct, frozen=True):
    """Where user code's failures are told: see :class:`anabranch.log.handover.Poison`."""

    url: str
    user: str | None
    password: str | None
    query: str
    fragment: str
    run: str

    def tell(self, poison: list[Poison]) -> None:
        """Returns when the agent knows of it."""
        hand_over(
            Server(self.url, self.user, self.password),
            names.engine(self.query),
            [
                handover.Poison(self.fragment, self.run, each.operator, each.ts, each.hi, each.lo, each.error)
                for each in poison
            ],
        )


def _tell(reports: Reports | None, poison: list[Poison]) -> None:
    if reports is not None:
        reports.tell(poison)
        return
    for each in poison:
        print(f"operator '{each.operator}' failed on a tuple: {each}", file=sys.stderr)


def apply_function(
    batches: Iterator[pa.RecordBatch],
    operator: Custom,
    columns: tuple[Column, ...],
    reports: Reports | None,
) -> Iterator[pa.RecordBatch]:
    """The function form: ids stay those of the rows given, beside the ordinal of what was made of them."""
    function = RowFunction(operator, columns)
    given = with_ids(arrow_schema(columns))
    for batch in batches:
        rows = conform(batch, given)
        for made in function.apply(rows):
            source = pa.array(made.source)
            yield pa.RecordBatch.from_arrays(
                [
                    *(rows_.take(source) for rows_ in made.rows.columns[:3]),
                    pa.array(made.ordinal),
                    *made.columns,
                ],
                names=[TS, HI, LO, ORDINAL, *(column.name for column in operator.columns)],
            )
        _tell(reports, function.take_events())


def fold_windows(
    batches: Iterator[pa.RecordBatch],
    operator: Custom,
    columns: tuple[Column, ...],
    silent_until: int,
    reports: Reports | None,
) -> Iterator[pa.RecordBatch]:
    """The class form, on whole windows: each row is one, its members in canonical order in the last
    column."""
    window = _Windows(operator, columns, silent_until)
    for batch in batches:
        kept, results = [], []
        for i in range(batch.num_rows):
            result = window.fold(batch, i)
            if result is not None:
                kept.append(i)
                results.append(result)
        if kept:
            rest = [column.take(pa.array(kept)) for column in batch.columns[:-1]]
            made = [pa.concat_arrays(list(column)) for column in zip(*results, strict=True)]
            yield pa.RecordBatch.from_arrays(
                [*rest, *made], names=[*batch.schema.names[:-1], *(c.name for c in operator.columns)]
            )
        _tell(reports, window.take_events())


class _Windows:
    def __init__(self, operator: Custom, columns: tuple[Column, ...], silent_until: int) -> None:
        assert operator.window is not None
        self._operator = operator
        self._columns = columns
        self._user = instance(operator)
        self._every = operator.every or operator.window
        self._members = with_ids(arrow_schema(columns))
        self._results = arrow_schema(operator.columns)
        self._silent_until = silent_until
        self._poison: list[Poison] = []

    def take_events(self) -> list[Poison]:
        events, self._poison = self._poison, []
        return events

    def fold(self, batch: pa.RecordBatch, i: int) -> list[pa.Array] | None:
        """The result of window ``i``; None if user code left nothing of it."""
        end, hi, lo = (int(ints(batch.column(place))[i]) for place in range(3))
        members = batch.column(batch.num_columns - 1)[i].values
        rows = conform(pa.RecordBatch.from_arrays(members.flatten(), names=members.type.names), self._members)
        state = self._state(rows, end)
        if state is None:
            return None
        try:
            result = self._user.final(state[0])
            return [pa.array([result[field.name]], field.type) for field in self._results]
        except Exception as error:  # the window itself is the poison
            self._report(end, hi, lo, error)
            return None

    def _state(self, rows: Batch, end: int) -> list[Any] | None:
        """In a list of its own, for a state may be None."""
        ts, hi, lo = (ints(rows.column(place)).tolist() for place in range(3))
        state: list[Any] | None = None
        for row, given in enumerate(as_given(rows, self._columns).to_pylist()):
            try:
                lifted = self._user.lift(given)
            except Exception as error:
                if end == self._first_window(ts[row]):
                    self._report(ts[row], hi[row], lo[row], error)
                continue
            try:
                state = [lifted if state is None else self._user.merge(state[0], lifted)]
            except Exception as error:
                self._report(ts[row], hi[row], lo[row], error)
        return state

    def _first_window(self, ts: int) -> int:
        """The end of the first window that is emitted with a tuple of this time: there it is reported."""
        return int(max(ts, self._silent_until) // self._every * self._every + self._every)

    def _report(self, ts: int, hi: int, lo: int, error: Exception) -> None:
        self._poison.append(Poison(self._operator.name, ts, hi, lo, describe(error)))


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of ``batch`` as ``schema`` has them, whatever width or zone Spark gave them."""
    columns = [
        column if column.type == field.type else _cast(column, field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return (
        column.view(kind) if kind == TIMESTAMP and pa.types.is_timestamp(column.type) else column.cast(kind)
    )
