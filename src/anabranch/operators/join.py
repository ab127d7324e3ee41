"""Join: pairs less than ``within`` apart that agree on ``on`` and satisfy ``where`` (Algorithm 2).

A pair has the later of the two timestamps; its id hashes both ids. It is emitted when its second tuple
arrives: nothing waits for a punctuation. Null keys match nothing; NaN equals NaN and -0.0 equals 0.0, as in
Spark.

>>> from anabranch.graph import Column, Graph, Join, Source
>>> load = Source("load", (Column("host", "string"), Column("load", "double")))
>>> rtt = Source("rtt", (Column("host", "string"), Column("ms", "double")))
>>> pairs = Join("pairs", "load", "rtt", 10, ("host",), "ms > 50")
>>> kernel = JoinKernel(pairs, Graph("q", (load, rtt), (pairs,), ()))
>>> def rows(ts, host, **column):
...     (name, value), = column.items()
...     return pa.RecordBatch.from_pydict(
...         {"_ts": [ts], "_hi": [ts], "_lo": [0], "host": [host], name: [value]},
...         schema=with_ids(pa.schema({"host": pa.string(), name: pa.float64()})))
>>> kernel.process(0, rows(5, "a", load=0.9)), kernel.process(1, rows(15, "a", ms=60.0))
(None, None)
>>> kernel.process(1, rows(14, "a", ms=60.0)).select(["host", "load", "ms"]).to_pylist()
[{'host': 'a', 'load': 0.9, 'ms': 60.0}]
"""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.graph import Graph, Join
from anabranch.operators.columns import positions
from anabranch.operators.filter import select
from anabranch.operators.join_buffer import FEW, JoinBuffer
from anabranch.operators.sql import compile_predicate
from anabranch.operators.state import empty, pack, unpack
from anabranch.streams.batch import Batch, Ints, assemble, concat, ids, timestamps, with_ids
from anabranch.streams.hashing import content_lanes, join_ids
from anabranch.streams.punctuation import BEGINNING, END, later
from anabranch.types import arrow_schema


class _State(msgspec.Struct, frozen=True):
    punctuations: list[int]


class JoinKernel:
    historic = False

    def __init__(self, operator: Join, graph: Graph) -> None:
        left, right = graph.schema(operator.left), graph.schema(operator.right)
        pairs = graph.schema(operator.name)
        self.name = operator.name
        self.schema = with_ids(arrow_schema(pairs))
        self.punctuation = BEGINNING
        self._within = operator.within
        self._input_schemas = [with_ids(arrow_schema(left)), with_ids(arrow_schema(right))]
        self._on = positions(operator.on, left), positions(operator.on, right)
        # The columns of ``on`` appear once: the left side's.
        self._left_columns = range(3, 3 + len(left))
        self._right_columns = [i for i in range(3, 3 + len(right)) if i not in self._on[1]]
        self._where = None if operator.where is None else compile_predicate(operator.where, pairs)
        self._buffers = JoinBuffer(), JoinBuffer()
        self._punctuations = [BEGINNING, BEGINNING]

    def start(self, complete_from: tuple[int, ...]) -> int:
        # A pair's tuples are less than ``within`` before it.
        return later(max(complete_from), self._within)

    def process(self, port: int, rows: Batch) -> Batch | None:
        on = self._on[port]
        keys = [rows.column(i) for i in on]
        if any(key.null_count for key in keys):
            known = self._with_keys(rows, keys)
            if known is None:
                return None
            rows = known
            keys = [rows.column(i) for i in on]
        ts = timestamps(rows)
        hi, lo = ids(rows)
        key1, key2 = content_lanes(self.name, np.zeros(len(ts), np.int64), keys)
        mine, others = self._buffers[port], self._buffers[1 - port]
        out = None
        if others.count:
            # Algorithm 2, lines 2-4.
            new, old = others.matches(ts, key1, key2, self._within)
            if len(new):
                out = self._pairs(port, rows, (ts, hi, lo), new, old)
        # Line 5; what no later tuple of the other input can be near to needs no place.
        if int(ts[-1] if len(ts) == 1 else ts.max()) > self._behind(1 - port):
            mine.add(rows, ts, hi, lo, key1, key2)
        return out

    def _with_keys(self, rows: Batch, keys: list[pa.Array]) -> Batch | None:
        known = np.ones(rows.num_rows, np.bool_)
        for key in keys:
            known &= key.is_valid().to_numpy(zero_copy_only=False)
        return select(rows, known)

    def _pairs(
        self, port: int, rows: Batch, numbers: tuple[Ints, Ints, Ints], new: Ints, old: Ints
    ) -> Batch | None:
        others = self._buffers[1 - port]
        if len(new) > 1:
            order = np.lexsort((new, old))
            new, old = new[order], old[order]
        if rows.num_rows == 1 and len(new) <= FEW:
            mine = concat([rows] * len(new))
        else:
            mine = rows.take(pa.array(new))
        sides = [(mine, *(column[new] for column in numbers)), (others.take(old), *others.numbers(old))]
        (left, left_ts, left_hi, left_lo), (right, right_ts, right_hi, right_lo) = (
            sides if port == 0 else sides[::-1]
        )
        pairs = assemble(
            np.maximum(left_ts, right_ts),
            *join_ids(left_hi, left_lo, right_hi, right_lo),
            [left.column(i) for i in self._left_columns] + [right.column(i) for i in self._right_columns],
            self.schema,
        )
        return pairs if self._where is None else select(pairs, self._where(pairs))

    def punctuate(self, port: int, p: int) -> None:
        self._punctuations[port] = p
        self.punctuation = min(self._punctuations)
        self._buffers[1 - port].evict(self._behind(port))

    def _behind(self, port: int) -> int:
        """Tuples up to here have no partner to come from ``port``: those have timestamps > p, and p - ts >=
        within. (Algorithm 2 writes p - ts > w, which keeps a tuple at exactly w for nothing.)"""
        p = self._punctuations[port]
        return p if p in (BEGINNING, END) else p - self._within

    def snapshot(self) -> bytes:
        held = [
            buffer.rows() or empty(schema)
            for buffer, schema in zip(self._buffers, self._input_schemas, strict=True)
        ]
        return pack(self.name, _State(self._punctuations), held)

    def restore(self, snapshot: bytes) -> None:
        state, held = unpack(snapshot, self.name, _State, self._input_schemas)
        self._buffers = JoinBuffer(), JoinBuffer()
        for port, rows in enumerate(held):
            if rows.num_rows:
                keys = [rows.column(i) for i in self._on[port]]
                lanes = content_lanes(self.name, np.zeros(rows.num_rows, np.int64), keys)
                self._buffers[port].add(rows, timestamps(rows), *ids(rows), *lanes)
        self._punctuations = state.punctuations
        self.punctuation = min(self._punctuations)
