"""What users write: a query, built stream by stream; every mistake is an error where it is made.

>>> q = Query("netwatch")
>>> load = q.source("load", "host string, load double")
>>> rtt = q.source("rtt", "host string, peer string, ms double")
>>> pairs = load.where("load > 0.5").join(rtt, on="host", within="10 seconds", where="ms > 50", name="pairs")
>>> worst = pairs.aggregate("10 s", every="5 s", by="host", n="count(*)", worst="max(ms)", name="worst")
>>> q.output("alerts", worst)
>>> [column.name for column in q.graph.schema("worst")]
['window_start', 'window_end', 'host', 'n', 'worst']
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from anabranch.durations import Duration, microseconds
from anabranch.graph import Graph
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
from anabranch.schemas import Columns, find, output_schema, source_schema
from anabranch.types import QueryError, check_name, parse_ddl

Names = str | Sequence[str] | None
Expressions = Mapping[str, str] | None


class Query:
    """A query under construction; ``graph`` is what it amounts to so far."""

    def __init__(self, name: str) -> None:
        self.name = check_name(name, "query")
        self._sources: list[Source] = []
        self._operators: list[Operator] = []
        self._outputs: list[Output] = []
        self._schemas: dict[str, Columns] = {}

    @property
    def graph(self) -> Graph:
        """The query as frozen, hashable data."""
        return Graph(self.name, tuple(self._sources), tuple(self._operators), tuple(self._outputs)).validate()

    def source(
        self,
        name: str,
        columns: str,
        *,
        lateness: Duration | None = None,
        timestamps: Literal["source", "entry"] = "source",
        identity: Literal["sequence", "content", "partition"] = "sequence",
    ) -> Stream:
        """Where tuples enter, with ``columns`` in Spark's DDL.

        ``timestamps`` says who stamps a tuple: the "source" itself, or the "entry" point on arrival. A tuple
        that a source stamps is late if it arrives more than ``lateness`` after its timestamp. ``identity``
        says what makes two arrivals the same tuple: the producer's "sequence"; for streams that are
        replicated before they come here, their "content"; for files that every entry point reads by itself,
        the number in its "partition": a file's name and row.
        """
        where = f"source '{name}'"
        self._check_free(name, where)
        _check_choice(timestamps, ("source", "entry"), f"{where}, timestamps")
        _check_choice(identity, ("sequence", "content", "partition"), f"{where}, identity")
        length = 0 if lateness is None else microseconds(lateness, f"{where}, lateness")
        source = Source(name, parse_ddl(columns, where), timestamps, length, identity)
        self._schemas[name] = source_schema(source)
        self._sources.append(source)
        return Stream(self, name)

    def output(self, name: str, stream: Stream, *, order: Literal["timestamp"] | None = None) -> None:
        """Lets applications subscribe to ``stream`` as ``name``; sorted if ``order`` is "timestamp"."""
        where = f"output '{name}'"
        check_name(name, where)
        if any(output.name == name for output in self._outputs):
            raise QueryError(f"{where} is there already; choose another name.")
        self._check_own(stream, where)
        _check_choice(order, (None, "timestamp"), f"{where}, order")
        self._outputs.append(Output(name, stream.name, order))

    def _add(self, operator: Operator) -> Stream:
        schema = output_schema(operator, [self._schemas[name] for name in operator.inputs])
        self._schemas[operator.name] = schema
        self._operators.append(operator)
        return Stream(self, operator.name)

    def _new_name(self, given: str | None, kind: str) -> str:
        """``given``, or the first of ``filter1``, ``filter2``, ... that is free."""
        if given is not None:
            self._check_free(given, f"operator '{given}'")
            return given
        number = 1 + sum(operator.__struct_config__.tag == kind for operator in self._operators)
        while f"{kind}{number}" in self._schemas:
            number += 1
        return f"{kind}{number}"

    def _check_free(self, name: str, where: str) -> None:
        check_name(name, where)
        if name in self._schemas:
            raise QueryError(f"{where}: a stream of that name is there already; choose another name.")

    def _check_own(self, stream: Stream, where: str) -> None:
        if not isinstance(stream, Stream):
            raise QueryError(
                f"{where}: {stream!r} is not a stream; give what source() or an operator returned."
            )
        if stream.query is not self:
            raise QueryError(
                f"{where}: stream '{stream.name}' belongs to query '{stream.query.name}', "
                f"not to '{self.name}'; build both in one query."
            )


class Stream:
    """The tuples of a source or an operator; every method adds an operator and returns its stream."""

    def __init__(self, query: Query, name: str) -> None:
        self.query = query
        self.name = name

    def __repr__(self) -> str:
        columns = ", ".join(f"{column.name} {column.type}" for column in self.columns)
        return f"<stream {self.name}: {columns}>"

    @property
    def columns(self) -> Columns:
        return self.query._schemas[self.name]

    def where(self, predicate: str, *, name: str | None = None) -> Stream:
        """The tuples for which ``predicate`` is true."""
        name = self.query._new_name(name, "filter")
        return self.query._add(Filter(name, self.name, predicate))

    def select(self, columns: Expressions = None, /, *, name: str | None = None, **more: str) -> Stream:
        """Exactly these columns: ``select(host="host", ratio="a / b")``.

        A column that is itself called ``name`` goes into a mapping: ``select({"name": "upper(host)"})``.
        """
        name = self.query._new_name(name, "map")
        return self.query._add(Map(name, self.name, _pairs(columns, more, f"operator '{name}'")))

    def union(self, *others: Stream, name: str | None = None) -> Stream:
        """All tuples of this stream and of ``others``, which have the same columns."""
        name = self.query._new_name(name, "union")
        for other in others:
            self.query._check_own(other, f"operator '{name}'")
        return self.query._add(Union(name, (self.name, *(other.name for other in others))))

    def join(
        self,
        other: Stream,
        *,
        within: Duration,
        on: Names = None,
        where: str | None = None,
        name: str | None = None,
    ) -> Stream:
        """Pairs less than ``within`` apart that agree on the columns ``on`` and satisfy ``where``.

        ``on`` columns appear once, the left side keeps its names, a clashing right column is ``right_NAME``;
        ``where`` uses these names.
        """
        name = self.query._new_name(name, "join")
        place = f"operator '{name}'"
        self.query._check_own(other, place)
        length = microseconds(within, f"{place}, within")
        keys = self._resolve(on, f"{place}, on")
        return self.query._add(Join(name, self.name, other.name, length, keys, where))

    def aggregate(
        self,
        window: Duration,
        aggregates: Expressions = None,
        /,
        *,
        every: Duration | None = None,
        by: Names = None,
        name: str | None = None,
        **more: str,
    ) -> Stream:
        """Per group and window, of which one ends at every multiple of ``every``.

        An aggregate called by, every or name goes into a mapping: ``aggregate("10 s", {"by": "..."})``.
        """
        name = self.query._new_name(name, "aggregate")
        where = f"operator '{name}'"
        length, slide = _window(window, every, where)
        keys = self._resolve(by, f"{where}, by")
        return self.query._add(
            Aggregate(name, self.name, length, slide, keys, _pairs(aggregates, more, where))
        )

    def count_windows(
        self,
        count: int,
        aggregates: Expressions = None,
        /,
        *,
        every: int | None = None,
        by: Names = None,
        name: str | None = None,
        **more: str,
    ) -> Stream:
        """Per group, ``count`` tuples in timestamp order, every ``every`` tuples."""
        name = self.query._new_name(name, "count_aggregate")
        where = f"operator '{name}'"
        size = _whole(count, f"{where}, count")
        step = size if every is None else _whole(every, f"{where}, every")
        keys = self._resolve(by, f"{where}, by")
        return self.query._add(
            CountAggregate(name, self.name, size, step, keys, _pairs(aggregates, more, where))
        )

    def top(
        self,
        k: int,
        *,
        by: str,
        window: Duration,
        every: Duration | None = None,
        name: str | None = None,
    ) -> Stream:
        """The ``k`` tuples of each window for which the expression ``by`` is greatest."""
        name = self.query._new_name(name, "top_k")
        where = f"operator '{name}'"
        length, slide = _window(window, every, where)
        return self.query._add(TopK(name, self.name, _whole(k, f"{where}, k"), by, length, slide))

    def custom(
        self,
        target: str,
        *,
        columns: str,
        window: Duration | None = None,
        every: Duration | None = None,
        by: Names = None,
        name: str | None = None,
    ) -> Stream:
        """User Python, named ``package.module:name``, which yields ``columns`` (Spark's DDL).

        Without a window it is a function from batch to batch, with one a class of lift, merge and final.
        """
        name = self.query._new_name(name, "custom")
        where = f"operator '{name}'"
        if not isinstance(target, str):
            raise QueryError(f"{where}: {target!r} is not a target; write it as 'package.module:name'.")
        declared = parse_ddl(columns, where)
        keys = self._resolve(by, f"{where}, by")
        length = None if window is None else microseconds(window, f"{where}, window")
        slide = length if every is None else microseconds(every, f"{where}, every")
        return self.query._add(Custom(name, self.name, target, declared, length, slide, keys))

    def _resolve(self, names: Names, where: str) -> tuple[str, ...]:
        """Column names as the stream spells them."""
        given = (names,) if isinstance(names, str) else tuple(names or ())
        for name in given:
            if not isinstance(name, str):
                raise QueryError(f"{where}: a column is named by a string, not {name!r}.")
        return tuple(find(name, self.columns, where).name for name in given)


def _pairs(first: Expressions, more: Mapping[str, str], where: str) -> tuple[tuple[str, str], ...]:
    if first is not None and not isinstance(first, Mapping):
        raise QueryError(
            f"{where}: {first!r} is not a mapping of names to expressions; write x='expression'."
        )
    pairs = (*(first or {}).items(), *more.items())
    for name, expr in pairs:
        if not isinstance(expr, str):
            raise QueryError(f"{where}, column '{name}': an expression is a string in SQL, not {expr!r}.")
    return pairs


def _window(window: Duration, every: Duration | None, where: str) -> tuple[int, int]:
    length = microseconds(window, f"{where}, window")
    return length, length if every is None else microseconds(every, f"{where}, every")


def _whole(number: int, where: str) -> int:
    if not isinstance(number, int) or isinstance(number, bool):
        raise QueryError(f"{where}: {number!r} is not a number of tuples; give a whole number from 1 on.")
    return number


def _check_choice(given: str | None, choices: tuple[str | None, ...], where: str) -> None:
    if given not in choices:
        allowed = " or ".join("None" if choice is None else f'"{choice}"' for choice in choices)
        raise QueryError(f"{where}: {given!r} is not a choice; use {allowed}.")
