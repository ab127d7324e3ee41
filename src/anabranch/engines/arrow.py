"""The Arrow engine: runs a fragment's kernels in this process. For simulator, tests, and edge boxes.

It is pure: no I/O, no clock, and nothing remembered beyond its snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa

from anabranch.graph import Graph
from anabranch.operators.kernel import Kernel
from anabranch.operators.registry import kernel
from anabranch.operators.state import SnapshotError
from anabranch.operators.user import Poison
from anabranch.protocols.events import Poisoned
from anabranch.streams.batch import Batch, concat
from anabranch.streams.punctuation import BEGINNING


class Emission(NamedTuple):
    """Rows of an exported stream, and the punctuation that follows them."""

    stream: str
    rows: Batch | None
    punctuation: int


class _State(msgspec.Struct, frozen=True):
    kernels: dict[str, bytes]


class _Node:
    """One operator replica in the fragment."""

    __slots__ = ("consumers", "exported", "kernel", "name", "rows_in", "rows_out", "told")

    def __init__(self, name: str, kernel: Kernel) -> None:
        self.name = name
        self.kernel = kernel
        self.consumers: list[tuple[_Node, int]] = []
        self.exported: list[Batch] | None = None
        self.told = BEGINNING
        self.rows_in = 0
        self.rows_out = 0


class ArrowEngine:
    """Runs ``operators`` of ``graph``. ``inputs`` are the streams they take in from outside; ``exports``
    (unless given, all they yield) are the streams that leave; ``at`` names the site in events.

    >>> import anabranch as ab, pyarrow as pa
    >>> q = ab.Query("q")
    >>> busy = q.source("load", "load double").where("load > 0.5", name="busy")
    >>> q.output("alerts", busy)
    >>> engine = ArrowEngine(q.graph, ("busy",))
    >>> engine.start({"load": BEGINNING}) == {"busy": BEGINNING}
    True
    >>> rows = pa.RecordBatch.from_pydict({"_ts": [1, 2], "_hi": [0, 0], "_lo": [1, 2], "load": [0.1, 0.9]},
    ...     schema=engine.schema("busy"))
    >>> (stream, out, punctuation), = engine.feed("load", rows, 7)
    >>> stream, out.column("load").to_pylist(), punctuation
    ('busy', [0.9], 7)
    """

    def __init__(
        self,
        graph: Graph,
        operators: Sequence[str],
        exports: Sequence[str] | None = None,
        at: str = "",
    ) -> None:
        chosen = [operator for operator in graph.operators if operator.name in operators]
        if len(chosen) != len(operators):
            unknown = sorted(set(operators) - {operator.name for operator in chosen})
            raise ValueError(
                f"query '{graph.name}' has no operator {unknown}; it has {[o.name for o in graph.operators]}"
            )
        self.at = at
        self._nodes = {operator.name: _Node(operator.name, kernel(operator, graph)) for operator in chosen}
        self._sources = {operator.name: operator.inputs for operator in chosen}
        self._consumers: dict[str, list[tuple[_Node, int]]] = {}
        for operator in chosen:
            for port, stream in enumerate(operator.inputs):
                producer = self._nodes.get(stream)
                routes = self._consumers.setdefault(stream, []) if producer is None else producer.consumers
                routes.append((self._nodes[operator.name], port))
        self.inputs = tuple(self._consumers)
        self.outputs = tuple(self._nodes)
        self.exports = self.outputs if exports is None else tuple(exports)
        for stream in self.exports:
            if stream not in self._nodes:
                raise ValueError(
                    f"stream '{stream}' cannot be exported: this fragment yields {list(self.outputs)}"
                )
            self._nodes[stream].exported = []
        self._exporting = [self._nodes[stream] for stream in self.exports]
        self.historic = any(node.kernel.historic for node in self._nodes.values())
        self._poisonable = [
            node.kernel for node in self._nodes.values() if hasattr(node.kernel, "take_events")
        ]
        self._promised = dict.fromkeys(self.inputs, BEGINNING)

    def schema(self, stream: str) -> pa.Schema:
        """Of the rows of a stream that this fragment yields."""
        return self._nodes[stream].kernel.schema

    def start(self, complete_from: dict[str, int]) -> dict[str, int]:
        """Where each input is complete from; returns it for each export. Called again when one has moved."""
        known = dict(complete_from)
        for name, node in self._nodes.items():
            known[name] = node.kernel.start(tuple(known[stream] for stream in self._sources[name]))
        # Who waited may go on now: the next punctuation is news, even if it is an old one.
        self._promised = dict.fromkeys(self.inputs, BEGINNING)
        return {stream: known[stream] for stream in self.exports}

    def feed(self, stream: str, rows: Batch | None, punctuation: int | None) -> list[Emission]:
        """Rows of an input, then the punctuation behind them; returns what that makes known on each export,
        at most one emission each."""
        if rows is not None and rows.num_rows:
            self._rows(self._consumers[stream], rows)
        if punctuation is not None and punctuation > self._promised[stream]:
            self._promised[stream] = punctuation
            self._punctuation(self._consumers[stream], punctuation)
        return [emission for node in self._exporting if (emission := _emission(node)) is not None]

    def _rows(self, consumers: list[tuple[_Node, int]], rows: Batch) -> None:
        for node, port in consumers:
            node.rows_in += rows.num_rows
            out = node.kernel.process(port, rows)
            if out is not None:
                self._yield(node, out)

    def _yield(self, node: _Node, out: Batch) -> None:
        node.rows_out += out.num_rows
        if node.exported is not None:
            node.exported.append(out)
        if node.consumers:
            self._rows(node.consumers, out)

    def _punctuation(self, consumers: list[tuple[_Node, int]], p: int) -> None:
        for node, port in consumers:
            before = node.kernel.punctuation
            out = node.kernel.punctuate(port, p)
            if out is not None:
                self._yield(node, out)
            after = node.kernel.punctuation
            if after > before and node.consumers:
                self._punctuation(node.consumers, after)

    def snapshot(self) -> bytes:
        """The whole state; of an operator that depends on all of history, as of its punctuation."""
        kernels = {name: node.kernel.snapshot() for name, node in self._nodes.items()}
        return msgspec.msgpack.encode(_State(kernels))

    def restore(self, snapshot: bytes) -> None:
        """Goes on from ``snapshot``, of a fragment of the same operators. Call ``start`` again afterwards: an
        operator that depends on all of history is complete only from the snapshot's punctuation."""
        try:
            state = msgspec.msgpack.decode(snapshot, type=_State)
        except msgspec.MsgspecError as error:
            raise SnapshotError(
                f"fragment {list(self.outputs)} cannot restore this snapshot: its {len(snapshot)} bytes are "
                f"damaged or no snapshot at all ({error}); fetch it again or start the fragment without it"
            ) from error
        if list(state.kernels) != list(self._nodes):
            raise SnapshotError(
                f"fragment {list(self.outputs)} cannot restore this snapshot: it is of fragment "
                f"{list(state.kernels)}; hand it one of the same operators"
            )
        for name, node in self._nodes.items():
            node.kernel.restore(state.kernels[name])
            node.told = node.kernel.punctuation
        self._promised = dict.fromkeys(self.inputs, BEGINNING)

    def events(self) -> list[Poisoned]:
        """The tuples on which user code raised since the last call."""
        if not self._poisonable:
            return []
        return [
            Poisoned(poison.operator, self.at, poison.ts, poison.hi, poison.lo, poison.error)
            for poison in self._poisons()
        ]

    def _poisons(self) -> Iterator[Poison]:
        for poisonable in self._poisonable:
            yield from poisonable.take_events()

    @property
    def rows(self) -> dict[str, tuple[int, int]]:
        """For each operator: rows taken in, over all ports, and rows yielded."""
        return {name: (node.rows_in, node.rows_out) for name, node in self._nodes.items()}


def _emission(node: _Node) -> Emission | None:
    """What an exported node has to tell; rows come before the punctuation that follows them."""
    p = node.kernel.punctuation
    made = node.exported
    if made:
        rows = concat(made)
        made.clear()
    elif p == node.told:
        return None
    else:
        rows = None
    node.told = p
    return Emission(node.name, rows, p)
