"""A query as data: sources, operators and outputs, joined by the names of streams; validation; JSON."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import msgspec

from anabranch.nodes import (
    Aggregate,
    CountAggregate,
    Custom,
    Filter,
    Join,
    Map,
    Operator,
    Output,
    Source,
    TopK,
    Union,
)
from anabranch.schemas import Columns, output_schema, source_schema
from anabranch.types import Column, QueryError, check_name

__all__ = [
    "Aggregate",
    "Column",
    "CountAggregate",
    "Custom",
    "Filter",
    "Graph",
    "Join",
    "Map",
    "Operator",
    "Output",
    "QueryError",
    "Source",
    "TopK",
    "Union",
]


class Graph(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A whole query: sources and operators in an order in which every input precedes its consumer."""

    name: str
    sources: tuple[Source, ...]
    operators: tuple[Operator, ...]
    outputs: tuple[Output, ...]

    def node(self, name: str) -> Source | Operator:
        """The source or operator that yields the stream ``name``."""
        found = self._nodes.get(name)
        if found is None:
            known = ", ".join(self._nodes) or "none"
            raise QueryError(f"query '{self.name}' has no stream '{name}'; its streams are {known}.")
        return found

    def schema(self, stream: str) -> Columns:
        """The user columns of a stream, without the id columns."""
        self.node(stream)
        return self._schemas[stream]

    def consumers(self, stream: str) -> tuple[str, ...]:
        """The operators fed by a stream, each once, in order."""
        self.node(stream)
        return self._consumers.get(stream, ())

    def order(self) -> tuple[str, ...]:
        """The names of the operators, every one behind those that feed it."""
        return tuple(operator.name for operator in self.operators)

    def span(self, operator: str) -> int:
        """How far apart in time two tuples may be and yet meet in ``operator``; 0 if they never have to."""
        node = self.node(operator)
        if isinstance(node, Join):
            return node.within
        if isinstance(node, Aggregate | TopK | Custom):
            return node.window or 0
        return 0

    def slides(self, source: str) -> tuple[int, ...]:
        """The slides of all time windows behind a source, ascending: at their multiples, results appear."""
        self.node(source)
        reached = {source}
        found = set()
        for operator in self.operators:
            if reached.isdisjoint(operator.inputs):
                continue
            reached.add(operator.name)
            if isinstance(operator, Aggregate | TopK):
                found.add(operator.every)
            elif isinstance(operator, Custom) and operator.window is not None:
                found.add(operator.every or operator.window)
        return tuple(sorted(found))

    def validate(self) -> Graph:
        """The graph itself; a QueryError that says what is wrong where, if anything is."""
        check_name(self.name, "query")
        for node in (*self.sources, *self.operators):
            check_name(node.name, f"{_kind(node)} '{node.name}'")
        _check_distinct([node.name for node in (*self.sources, *self.operators)], "stream")
        _check_distinct([output.name for output in self.outputs], "output")
        self._check_order()
        _ = self._schemas  # every operator's expressions are checked to infer its columns
        if not self.outputs:
            raise QueryError(f"query '{self.name}' has no output; give it one with output('name', stream).")
        for output in self.outputs:
            check_name(output.name, f"output '{output.name}'")
            if output.stream not in self._nodes:
                raise QueryError(f"output '{output.name}': there is no stream '{output.stream}'.")
        return self

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, text: bytes | str) -> Graph:
        """The graph that ``text`` describes, validated; a QueryError that names the offending field."""
        try:
            graph = msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise QueryError(f"this is not a query in JSON: {error}.") from None
        return graph.validate()

    @classmethod
    def load(cls, path: str | Path) -> Graph:
        """The graph in a JSON file; a QueryError that names file and field."""
        try:
            return cls.from_json(Path(path).read_bytes())
        except OSError as error:
            raise QueryError(f"{path}: cannot be read: {error.strerror}.") from None
        except QueryError as error:
            raise QueryError(f"{path}: {error}") from None

    @cached_property
    def _nodes(self) -> dict[str, Source | Operator]:
        return {node.name: node for node in (*self.sources, *self.operators)}

    @cached_property
    def _schemas(self) -> dict[str, Columns]:
        schemas = {source.name: source_schema(source) for source in self.sources}
        for operator in self.operators:
            schemas[operator.name] = output_schema(operator, [schemas[name] for name in operator.inputs])
        return schemas

    @cached_property
    def _consumers(self) -> dict[str, tuple[str, ...]]:
        return {
            stream: tuple(operator.name for operator in self.operators if stream in operator.inputs)
            for stream in self._nodes
        }

    def _check_order(self) -> None:
        """Every input exists, none depends on itself, and each stands before its consumers."""
        for operator in self.operators:
            for name in operator.inputs:
                if name not in self._nodes:
                    known = ", ".join(self._nodes)
                    raise QueryError(
                        f"operator '{operator.name}': there is no stream '{name}'; the streams are {known}."
                    )
        cycle = self._cycle()
        if cycle:
            path = " -> ".join([*cycle, cycle[0]])
            raise QueryError(
                f"operator '{cycle[0]}' is fed by itself: {path}; a query must not go in a circle."
            )
        above = {source.name for source in self.sources}
        for operator in self.operators:
            for name in operator.inputs:
                if name not in above:
                    raise QueryError(
                        f"operator '{operator.name}' stands before its input '{name}'; put inputs first."
                    )
            above.add(operator.name)

    def _cycle(self) -> list[str]:
        """The operators of one cycle in the direction of flow, or none."""
        waiting = {operator.name: operator for operator in self.operators}
        ready = list(waiting)
        while ready:
            ready = [name for name, node in waiting.items() if not any(i in waiting for i in node.inputs)]
            for name in ready:
                del waiting[name]
        if not waiting:
            return []
        path = [next(iter(waiting))]
        while True:
            feeder = next(name for name in waiting[path[-1]].inputs if name in waiting)
            if feeder in path:
                return path[path.index(feeder) :][::-1]
            path.append(feeder)


def _kind(node: Source | Operator) -> str:
    return "source" if isinstance(node, Source) else "operator"


def _check_distinct(names: list[str], what: str) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise QueryError(f"two {what}s are called '{name}'; rename one.")
        seen.add(name)
