"""Filter: passes the tuples for which a predicate is true (not false, not null). Ids and timestamps stay.

>>> from anabranch.graph import Column, Filter, Graph, Source
>>> source = Source("load", (Column("host", "string"), Column("load", "double")))
>>> busy = Filter("busy", "load", "load > 0.5")
>>> kernel = FilterKernel(busy, Graph("q", (source,), (busy,), ()))
>>> rows = pa.RecordBatch.from_pydict(
...     {"_ts": [1, 2, 3], "_hi": [0, 0, 0], "_lo": [1, 2, 3],
...      "host": ["a", "b", "c"], "load": [0.9, None, 0.1]},
...     schema=kernel.schema)
>>> kernel.process(0, rows).column("host").to_pylist()
['a']
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.graph import Filter, Graph
from anabranch.operators.sql import compile_predicate
from anabranch.operators.stateless import Stateless
from anabranch.streams.batch import Batch, with_ids
from anabranch.types import arrow_schema


class FilterKernel(Stateless):
    def __init__(self, operator: Filter, graph: Graph) -> None:
        super().__init__(operator.name)
        columns = graph.schema(operator.input)
        self.schema = with_ids(arrow_schema(columns))
        self._predicate = compile_predicate(operator.predicate, columns)

    def process(self, port: int, rows: Batch) -> Batch | None:
        return select(rows, self._predicate(rows))


def select(rows: Batch, mask: npt.NDArray[np.bool_] | None) -> Batch | None:
    """The rows where ``mask`` holds (None: all of them), without copying when that is all or none."""
    if mask is None:
        return rows
    passed = int(mask.sum())
    if passed == rows.num_rows:
        return rows
    return rows.filter(pa.array(mask)) if passed else None
