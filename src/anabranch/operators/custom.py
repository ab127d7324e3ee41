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

from anabranch.graph import Custom, Graph
from anabranch.operators.stateless import Stateless
from anabranch.operators.user import Made, Poison, RowFunction
from anabranch.streams.batch import Batch, assemble, concat, ids, timestamps, with_ids
from anabranch.streams.hashing import custom_ids
from anabranch.types import arrow_schema


class CustomKernel(Stateless):
    """The function form."""

    def __init__(self, operator: Custom, graph: Graph) -> None:
        super().__init__(operator.name)
        self.schema = with_ids(arrow_schema(graph.schema(operator.name)))
        self._function = RowFunction(operator, graph.schema(operator.input))

    def take_events(self) -> list[Poison]:
        """The poison found since the last call."""
        return self._function.take_events()

    def process(self, port: int, rows: Batch) -> Batch | None:
        made = [self._batch(each) for each in self._function.apply(rows)]
        return concat(made) if made else None

    def _batch(self, made: Made) -> Batch:
        hi, lo = ids(made.rows)
        return assemble(
            timestamps(made.rows)[made.source],
            *custom_ids(hi[made.source], lo[made.source], made.ordinal),
            made.columns,
            self.schema,
        )
