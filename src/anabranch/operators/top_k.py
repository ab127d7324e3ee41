"""TopK: the k tuples of each time window with the greatest value of an expression, greatest first.

Nulls come last, NaN is greater than every number; ties go to the tuple that is first in canonical order, then
by id. A result has the timestamp of the window's end, and its id is that of (operator, window, rank).

>>> from anabranch.graph import Column, Graph, Source, TopK
>>> from anabranch.streams.punctuation import BEGINNING
>>> source = Source("rtt", (Column("host", "string"), Column("ms", "double")))
>>> worst = TopK("worst", "rtt", 2, "ms", 10, 10)
>>> kernel = TopKKernel(worst, Graph("q", (source,), (worst,), ()))
>>> rows = pa.RecordBatch.from_pydict(
...     {"_ts": [1, 2, 3], "_hi": [0, 0, 0], "_lo": [1, 2, 3],
...      "host": ["a", "b", "c"], "ms": [20.0, None, 30.0]},
...     schema=with_ids(pa.schema({"host": pa.string(), "ms": pa.float64()})))
>>> kernel.start((BEGINNING,)) == BEGINNING, kernel.process(0, rows)
(True, None)
>>> kernel.punctuate(0, 10).column("host").to_pylist()
['c', 'a']
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.graph import Graph, TopK
from anabranch.operators.aggregate import window_bounds
from anabranch.operators.groups import places_in_runs
from anabranch.operators.sql import compile_scalar
from anabranch.operators.windows import Closing, WindowKernel
from anabranch.streams.batch import Batch, assemble, with_ids
from anabranch.streams.hashing import window_ids
from anabranch.streams.order import canonical_order
from anabranch.types import arrow_schema


class TopKKernel(WindowKernel):
    def __init__(self, operator: TopK, graph: Graph) -> None:
        columns = graph.schema(operator.input)
        super().__init__(operator.name, operator.window, operator.every, with_ids(arrow_schema(columns)))
        self.schema = with_ids(arrow_schema(graph.schema(operator.name)))
        self._k = operator.k
        self._by = compile_scalar(operator.by, columns)

    def summarise(self, closing: Closing) -> Batch:
        rows, index = closing.rows, closing.index
        # Rows come sorted by id, and canonical order keeps that where it sees no difference.
        place = np.empty(rows.num_rows, np.int64)
        place[canonical_order(rows)] = np.arange(rows.num_rows)
        values = descending(self._by(rows))
        order = np.lexsort((place[index], *(key[index] for key in values), closing.ends))
        ends = closing.ends[order]
        rank = places_in_runs(ends)
        top = rank < self._k
        ends, rank = ends[top], rank[top]
        best = rows.take(pa.array(index[order[top]]))
        return assemble(
            ends,
            *window_ids(self.name, ends, (), rank),
            [*window_bounds(ends - self._window, ends), *best.columns[3:]],
            self.schema,
        )


def descending(values: pa.Array) -> tuple[npt.NDArray[np.generic], ...]:
    """Keys for ``np.lexsort`` (least significant first) that put the greatest value first, nulls last.

    >>> np.lexsort(descending(pa.array([1.0, None, float("nan"), 2.0])))
    array([2, 3, 0, 1])
    """
    if pa.types.is_floating(values.type):
        null = values.is_null().to_numpy(zero_copy_only=False)
        numbers = values.fill_null(0.0).to_numpy(zero_copy_only=False)
        nan = np.isnan(numbers)
        return np.where(nan, 0.0, -numbers), ~nan, null
    ranks = pc.rank(values, sort_keys="descending", tiebreaker="dense")
    return (ranks.to_numpy(zero_copy_only=False),)
