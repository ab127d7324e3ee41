"""Aggregate: per group and time window [e - window, e), the aggregates of its tuples (Algorithm 3).

A result has the timestamp e, and its id is that of (operator, window, group). Windows without tuples yield
nothing.

>>> from anabranch.graph import Aggregate, Column, Graph, Source
>>> from anabranch.streams.punctuation import BEGINNING
>>> source = Source("rtt", (Column("host", "string"), Column("ms", "double")))
>>> worst = Aggregate("worst", "rtt", 10, 5, ("host",), (("n", "count(*)"), ("worst", "max(ms)")))
>>> kernel = AggregateKernel(worst, Graph("q", (source,), (worst,), ()))
>>> rows = pa.RecordBatch.from_pydict(
...     {"_ts": [1, 7], "_hi": [0, 0], "_lo": [1, 2], "host": ["a", "a"], "ms": [20.0, 30.0]},
...     schema=with_ids(pa.schema({"host": pa.string(), "ms": pa.float64()})))
>>> kernel.start((BEGINNING,)) == BEGINNING, kernel.process(0, rows), kernel.punctuate(0, 4)
(True, None, None)
>>> kernel.punctuate(0, 12).select(["host", "n", "worst"]).to_pylist()
[{'host': 'a', 'n': 1, 'worst': 20.0}, {'host': 'a', 'n': 2, 'worst': 30.0}]
"""

from __future__ import annotations

import pyarrow as pa

from anabranch.graph import Aggregate, Graph
from anabranch.operators.columns import positions
from anabranch.operators.groups import group_by_id, group_values
from anabranch.operators.sql import compile_aggregates
from anabranch.operators.windows import Closing, WindowKernel
from anabranch.streams.batch import TIMESTAMP, Batch, Ints, assemble, with_ids
from anabranch.streams.hashing import window_ids
from anabranch.types import arrow_schema


class AggregateKernel(WindowKernel):
    def __init__(self, operator: Aggregate, graph: Graph) -> None:
        columns = graph.schema(operator.input)
        super().__init__(operator.name, operator.window, operator.every, with_ids(arrow_schema(columns)))
        self.schema = with_ids(arrow_schema(graph.schema(operator.name)))
        self._by = positions(operator.by, columns)
        self._aggregation = compile_aggregates(operator.aggregates, columns)

    def summarise(self, closing: Closing) -> Batch:
        rows = closing.members
        keys = [rows.column(i) for i in self._by]
        hi, lo = window_ids(self.name, closing.ends, keys)
        group, firsts = group_by_id(hi, lo)
        ends = closing.ends[firsts]
        first_rows = pa.array(firsts)
        return assemble(
            ends,
            hi[firsts],
            lo[firsts],
            [
                *window_bounds(ends - self._window, ends),
                *(group_values(key, first_rows) for key in keys),
                *self._aggregation.apply(rows, group, len(firsts)),
            ],
            self.schema,
        )


def window_bounds(start: Ints, end: Ints) -> list[pa.Array]:
    """The columns ``window_start`` and ``window_end``."""
    return [pa.array(start).view(TIMESTAMP), pa.array(end).view(TIMESTAMP)]
