"""Map: computes exactly the named columns from each tuple. Ids and timestamps stay.

>>> from anabranch.graph import Column, Graph, Map, Source
>>> source = Source("rtt", (Column("host", "string"), Column("ms", "double")))
>>> seconds = Map("seconds", "rtt", (("host", "upper(host)"), ("s", "ms / 1000")))
>>> kernel = MapKernel(seconds, Graph("q", (source,), (seconds,), ()))
>>> rows = pa.RecordBatch.from_pydict(
...     {"_ts": [1], "_hi": [0], "_lo": [1], "host": ["a"], "ms": [250.0]},
...     schema=with_ids(pa.schema({"host": pa.string(), "ms": pa.float64()})))
>>> kernel.process(0, rows).select(["host", "s"]).to_pylist()
[{'host': 'A', 's': 0.25}]
"""

from __future__ import annotations

import pyarrow as pa

from anabranch.graph import Graph, Map
from anabranch.operators.sql import compile_scalar
from anabranch.operators.stateless import Stateless
from anabranch.streams.batch import Batch, with_ids
from anabranch.types import arrow_schema


class MapKernel(Stateless):
    def __init__(self, operator: Map, graph: Graph) -> None:
        super().__init__(operator.name)
        columns = graph.schema(operator.input)
        self.schema = with_ids(arrow_schema(graph.schema(operator.name)))
        self._expressions = [compile_scalar(expression, columns) for _, expression in operator.columns]

    def process(self, port: int, rows: Batch) -> Batch | None:
        if not rows.num_rows:
            return None
        computed = [expression(rows) for expression in self._expressions]
        return pa.RecordBatch.from_arrays(
            [rows.column(0), rows.column(1), rows.column(2), *computed], schema=self.schema
        )
