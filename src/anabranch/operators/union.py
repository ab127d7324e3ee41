"""Union: merges streams of one schema. Its punctuation is the smallest of its inputs'.

The position of an input, its port, is mixed into the ids: a stream united with a Map of itself carries every
id twice, and the two are different tuples.

>>> from anabranch.graph import Column, Graph, Source, Union
>>> source = Source("s", (Column("x", "bigint"),))
>>> both = Union("both", ("s", "s"))
>>> kernel = UnionKernel(both, Graph("q", (source,), (both,), ()))
>>> rows = pa.RecordBatch.from_pydict({"_ts": [1], "_hi": [5], "_lo": [6], "x": [7]}, schema=kernel.schema)
>>> kernel.process(0, rows).column("_lo") == kernel.process(1, rows).column("_lo")
False
>>> kernel.punctuate(0, 9), kernel.punctuation == BEGINNING, kernel.punctuate(1, 4), kernel.punctuation
(None, True, None, 4)
"""

from __future__ import annotations

import msgspec
import pyarrow as pa

from anabranch.graph import Graph, Union
from anabranch.operators.state import pack, unpack
from anabranch.streams.batch import Batch, ids, with_ids
from anabranch.streams.hashing import union_ids
from anabranch.streams.punctuation import BEGINNING
from anabranch.types import arrow_schema


class _State(msgspec.Struct, frozen=True):
    punctuations: list[int]


class UnionKernel:
    historic = False

    def __init__(self, operator: Union, graph: Graph) -> None:
        self.name = operator.name
        self.schema = with_ids(arrow_schema(graph.schema(operator.name)))
        self.punctuation = BEGINNING
        self._punctuations = [BEGINNING] * len(operator.inputs)
        self._users = range(3, len(self.schema))

    def start(self, complete_from: tuple[int, ...]) -> int:
        return max(complete_from)

    def process(self, port: int, rows: Batch) -> Batch | None:
        if not rows.num_rows:
            return None
        hi, lo = union_ids(*ids(rows), port)
        return pa.RecordBatch.from_arrays(
            [rows.column(0), pa.array(hi), pa.array(lo), *[rows.column(i) for i in self._users]],
            schema=self.schema,
        )

    def punctuate(self, port: int, p: int) -> None:
        self._punctuations[port] = p
        self.punctuation = min(self._punctuations)

    def snapshot(self) -> bytes:
        return pack(self.name, _State(self._punctuations), ())

    def restore(self, snapshot: bytes) -> None:
        state, _ = unpack(snapshot, self.name, _State, ())
        self._punctuations = state.punctuations
        self.punctuation = min(self._punctuations)
