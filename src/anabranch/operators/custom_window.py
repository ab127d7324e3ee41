"""Custom with a window: a class with ``lift``, ``merge`` and ``final``, folded per group and time window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.graph import Custom, Graph
from anabranch.operators.aggregate import window_bounds
from anabranch.operators.columns import positions
from anabranch.operators.groups import group_by_id, group_values
from anabranch.operators.user import Poison, as_given, describe, instance
from anabranch.operators.windows import Closing, WindowKernel
from anabranch.streams.batch import Batch, assemble, ids, timestamps, with_ids
from anabranch.streams.hashing import window_ids
from anabranch.streams.order import canonical_order
from anabranch.types import arrow_schema


class CustomWindowKernel(WindowKernel):
    def __init__(self, operator: Custom, graph: Graph) -> None:
        assert operator.window is not None
        columns = graph.schema(operator.input)
        every = operator.every or operator.window
        super().__init__(operator.name, operator.window, every, with_ids(arrow_schema(columns)))
        self.schema = with_ids(arrow_schema(graph.schema(operator.name)))
        self._by = positions(operator.by, columns)
        self._user = instance(operator)
        self._columns = columns
        self._results = arrow_schema(operator.columns)
        self._poison: list[Poison] = []

    def take_events(self) -> list[Poison]:
        """The poison found since the last call."""
        events, self._poison = self._poison, []
        return events

    def summarise(self, closing: Closing) -> Batch | None:
        rows = closing.rows
        place = np.empty(rows.num_rows, np.int64)
        place[canonical_order(rows)] = np.arange(rows.num_rows)
        order = np.argsort(place[closing.index], kind="stable")
        index, ends = closing.index[order], closing.ends[order]
        keys = [rows.column(i).take(pa.array(index)) for i in self._by]
        hi, lo = window_ids(self.name, ends, keys)
        group, firsts = group_by_id(hi, lo)
        states = self._fold(rows, index.tolist(), group.tolist())
        results, finished = [], []
        for i, state in states.items():
            first = firsts[i]
            try:
                results.append(self._final(state))
                finished.append(first)
            except Exception as error:  # the window itself is the poison
                self._report(int(ends[first]), int(hi[first]), int(lo[first]), error)
        if not finished:
            return None
        chosen = np.array(finished)
        return assemble(
            ends[chosen],
            hi[chosen],
            lo[chosen],
            [
                *window_bounds(ends[chosen] - self._window, ends[chosen]),
                *(group_values(key, pa.array(chosen)) for key in keys),
                *(pa.concat_arrays(list(column)) for column in zip(*results, strict=True)),
            ],
            self.schema,
        )

    def _fold(self, rows: Batch, index: list[int], group: list[int]) -> dict[int, Any]:
        """The state of each group in each window.

        A row that cannot be lifted is reported once and forgotten, also for its later windows; one that
        cannot be merged is left out of that window. Each membership is lifted anew: no window sees another's
        state.
        """
        given = as_given(rows, self._columns)
        states: dict[int, Any] = {}
        poisoned: dict[int, None] = {}
        for row, i in zip(index, group, strict=True):
            if row in poisoned:
                continue
            ts, hi, lo = _identity(rows, row)
            try:
                lifted = self._user.lift(given.slice(row, 1).to_pylist()[0])
            except Exception as error:
                poisoned[row] = None
                self.discard(hi, lo)
                self._report(ts, hi, lo, error)
                continue
            try:
                states[i] = self._user.merge(states[i], lifted) if i in states else lifted
            except Exception as error:
                self._report(ts, hi, lo, error)
        return states

    def _final(self, state: Any) -> list[pa.Array]:
        result = self._user.final(state)
        return [pa.array([result[field.name]], field.type) for field in self._results]

    def _report(self, ts: int, hi: int, lo: int, error: Exception) -> None:
        self._poison.append(Poison(self.name, ts, hi, lo, describe(error)))


def _identity(rows: Batch, row: int) -> tuple[int, int, int]:
    hi, lo = ids(rows)
    return int(timestamps(rows)[row]), int(hi[row]), int(lo[row])
