"""What a form has to know beside its operator."""

from __future__ import annotations

import msgspec

from anabranch.engines.spark.user_code import Reports
from anabranch.graph import Graph
from anabranch.streams.punctuation import BEGINNING


class Context(msgspec.Struct, frozen=True):
    """``complete_from`` of each operator: windows that end at or before it are not emitted. Without
    ``reports``, tuples on which user code raises yield nothing and only Spark's log says so."""

    graph: Graph
    complete_from: dict[str, int]
    salts: int = 1
    streaming: bool = True
    reports: Reports | None = None

    def silent_until(self, operator: str) -> int:
        return self.complete_from.get(operator, BEGINNING)
