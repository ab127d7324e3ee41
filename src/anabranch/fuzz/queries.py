"""Drawing queries: one to three sources, one to eight operators of every kind, one to three outputs.

A query grows operator by operator, each over streams that are already there, preferably over those nobody
consumes yet. The expected number of rows of every stream is carried along, so that no join explodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from anabranch.fuzz import phrases
from anabranch.fuzz.dice import Dice
from anabranch.graph import (
    Aggregate,
    Column,
    CountAggregate,
    Custom,
    Filter,
    Graph,
    Join,
    Map,
    Operator,
    Output,
    Source,
    TopK,
    Union,
)

PALETTE = (
    Column("key", "string"),
    Column("grade", "int"),
    Column("size", "bigint"),
    Column("load", "double"),
    Column("up", "boolean"),
)
ROWS = 40
"""Rows a source is expected to have while the query is drawn; inputs are scaled to the whole case later."""
MOST_ROWS = 200
WINDOW_COLUMNS = ("window_start", "window_end")
FUNCTIONS = {
    "measure": (Column("millisecond", "bigint"), Column("nulls", "bigint")),
    "echo": (Column("half", "double"),),
    "fussy": (Column("part", "bigint"), Column("odd", "boolean")),
}
WINDOWED = {
    "Census": (Column("population", "bigint"), Column("filled", "bigint")),
    "Balance": (Column("population", "bigint"), Column("filled", "bigint")),
}


def draw_graph(dice: Dice, span: float) -> Graph:
    """A query whose inputs last ``span`` seconds."""
    growth = _Growth(dice, span)
    size = dice.weighted(((1, 8), (2, 16), (3, 20), (4, 20), (5, 14), (6, 10), (7, 7), (8, 5)))
    while len(growth.operators) < size:
        kind = dice.weighted(growth.kinds(size - len(growth.operators)))
        kind()
    return growth.finish()


def expected_rows(graph: Graph, rows: Mapping[str, float], span: float) -> dict[str, float]:
    """About how many rows each stream of the query has if its sources have ``rows`` in ``span`` seconds."""
    expected = dict(rows)
    for operator in graph.operators:
        expected[operator.name] = _expected(operator, [expected[name] for name in operator.inputs], span)
    return expected


def _expected(operator: Operator, inputs: list[float], span: float) -> float:
    match operator:
        case Filter():
            return inputs[0] * 0.7
        case Join():
            overlap = min(1.0, 4 * operator.within / 1e6 / span)
            return inputs[0] * inputs[1] * overlap * 0.4 ** len(operator.on)
        case Aggregate() | TopK():
            windows = span * 1e6 / operator.every
            most = inputs[0] * max(1.0, operator.window / operator.every)
            each = operator.k if isinstance(operator, TopK) else 3.0 ** len(operator.by)
            return min(windows * each, most)
        case CountAggregate():
            return inputs[0] / operator.every
        case Custom(window=int(), every=int(every)):
            return min(span * 1e6 / every * 3.0 ** len(operator.by), inputs[0] * 2)
        case _:
            return sum(inputs)


class _Growth:
    def __init__(self, dice: Dice, span: float) -> None:
        self.dice = dice
        self.span = span
        self.operators: list[Operator] = []
        self.sources = self._draw_sources()
        self.columns = {source.name: source.columns for source in self.sources}
        self.rows: dict[str, float] = {source.name: ROWS for source in self.sources}
        self.idle = list(self.columns)
        """Streams that nobody consumes yet."""

    def _draw_sources(self) -> list[Source]:
        dice = self.dice
        common = tuple(dice.some(PALETTE, 0.6)) or (dice.pick(PALETTE),)
        sources = []
        for number in range(dice.weighted(((1, 45), (2, 35), (3, 20)))):
            columns = common if dice.chance(0.65) else tuple(dice.some(PALETTE, 0.6)) or (dice.pick(PALETTE),)
            stamped: Literal["entry", "source"] = "entry" if dice.chance(0.12) else "source"
            sources.append(
                Source(
                    name=f"source{number + 1}",
                    columns=columns,
                    timestamps=stamped,
                    lateness=dice.pick((0, 250_000, 1_000_000, 3_000_000)) if stamped == "source" else 0,
                    identity="content" if stamped == "source" and dice.chance(0.2) else "sequence",
                )
            )
        return sources

    def kinds(self, room: int) -> list[tuple[Callable[[], None], float]]:
        kinds: list[tuple[Callable[[], None], float]] = [
            (self._filter, 14),
            (self._map, 12),
            (self._aggregate, 18),
            (self._count_aggregate, 9),
            (self._top_k, 8),
            (self._function, 9),
            (self._windowed, 7),
            (self._join, 20),
            (self._union, 10),
        ]
        if room >= 2:
            kinds.append((self._union_with_image, 9))
        return kinds

    def _input(self) -> str:
        if self.idle and self.dice.chance(0.75):
            return self.dice.pick(self.idle)
        return self.dice.pick(list(self.columns))

    def _name(self, kind: str) -> str:
        return f"{kind}{len(self.operators) + 1}"

    def _add(self, operator: Operator) -> None:
        self.operators.append(operator)
        graph = Graph("growing", tuple(self.sources), tuple(self.operators), ())
        self.columns[operator.name] = graph.schema(operator.name)
        self.rows[operator.name] = _expected(
            operator, [self.rows[name] for name in operator.inputs], self.span
        )
        self.idle = [name for name in self.idle if name not in operator.inputs] + [operator.name]

    def _rows_of(self, operator: Operator) -> float:
        return _expected(operator, [self.rows[name] for name in operator.inputs], self.span)

    def _every(self, window: int) -> int:
        """Tumbling, sliding (not always by a divisor of the window) or with gaps between the windows."""
        return self.dice.weighted(
            ((window, 40), (window // 2, 25), (window * 7 // 10, 20), (window * 3 // 2, 15))
        )

    def _window(self) -> int:
        return self.dice.pick((500_000, 1_000_000, 1_500_000, 2_000_000, 3_000_000, 5_000_000))

    def _groups(self, columns: tuple[Column, ...]) -> tuple[str, ...]:
        fitting = [column.name for column in columns if column.name not in WINDOW_COLUMNS]
        return tuple(self.dice.sample(fitting, self.dice.weighted(((0, 30), (1, 50), (2, 20)))))

    def _filter(self) -> None:
        source = self._input()
        self._add(Filter(self._name("filter"), source, phrases.predicate(self.dice, self.columns[source])))

    def _map(self) -> None:
        source = self._input()
        derive = phrases.derivation if self.dice.chance(0.5) else phrases.image
        self._add(Map(self._name("map"), source, derive(self.dice, self.columns[source])))

    def _union(self) -> None:
        first = self._input()
        alike = [name for name, columns in self.columns.items() if columns == self.columns[first]]
        others = [name for name in alike if name != first and self.rows[name] + self.rows[first] <= MOST_ROWS]
        if not others or self.dice.chance(0.05):
            others = [first]
        if self.rows[first] * 2 <= MOST_ROWS:
            streams = (first, *self.dice.sample(others, self.dice.between(1, 2)))
            self._add(Union(self._name("union"), streams))

    def _union_with_image(self) -> None:
        source = self._input()
        if self.rows[source] * 2 <= MOST_ROWS:
            image = self._name("map")
            self._add(Map(image, source, phrases.image(self.dice, self.columns[source])))
            self._add(Union(self._name("union"), (source, image)))

    def _join(self) -> None:
        left, right = self._input(), self._input()
        names = [column.name for column in self.columns[left]]
        shared = [
            c.name for c in self.columns[left] if c in self.columns[right] and c.name not in WINDOW_COLUMNS
        ]
        on = tuple(self.dice.sample(shared, self.dice.weighted(((0, 20), (1, 60), (2, 20)))))
        rest = [column.name for column in self.columns[right] if column.name not in on]
        renamed = [f"right_{name}" if name in names else name for name in rest]
        if len({*names, *renamed}) < len(names) + len(renamed):
            return
        join = Join(self._name("join"), left, right, self.dice.pick((100_000, 400_000, 1_000_000)), on)
        if self._explodes(join):
            return
        if self.dice.chance(0.3):
            graph = Graph("growing", tuple(self.sources), (*self.operators, join), ())
            columns = [column for column in graph.schema(join.name) if column.type != "timestamp"]
            where = phrases.predicate(self.dice, columns) if columns else None
            join = Join(join.name, left, right, join.within, on, where)
        self._add(join)

    def _explodes(self, operator: Operator) -> bool:
        return self._rows_of(operator) > MOST_ROWS

    def _aggregate(self) -> None:
        source = self._input()
        window, by = self._window(), self._groups(self.columns[source])
        aggregates = phrases.aggregates(self.dice, self.columns[source], by)
        operator = Aggregate(self._name("windows"), source, window, self._every(window), by, aggregates)
        if not self._explodes(operator):
            self._add(operator)

    def _count_aggregate(self) -> None:
        source = self._input()
        count = self.dice.between(1, 6)
        every = self.dice.weighted(((count, 40), (1, 25), (max(1, count // 2), 20), (count + 1, 15)))
        by = self._groups(self.columns[source])
        aggregates = phrases.aggregates(self.dice, self.columns[source], by)
        self._add(CountAggregate(self._name("counts"), source, count, every, by, aggregates))

    def _top_k(self) -> None:
        source = self._input()
        columns = self.columns[source]
        ranked = [column.name for column in columns if column.type in ("int", "bigint", "double")]
        if ranked and not any(column.name in WINDOW_COLUMNS for column in columns):
            window = self._window()
            by = self.dice.pick(ranked)
            expression = by if self.dice.chance(0.7) else f"-{by}"
            k = self.dice.between(1, 3)
            self._add(TopK(self._name("top"), source, k, expression, window, self._every(window)))

    def _function(self) -> None:
        target = self.dice.pick(list(FUNCTIONS))
        source = self._input()
        self._add(Custom(self._name(target), source, f"anabranch.fuzz.functions:{target}", FUNCTIONS[target]))

    def _windowed(self) -> None:
        target = self.dice.pick(list(WINDOWED))
        source = self._input()
        window = self._window()
        made = [column.name for column in WINDOWED[target]]
        by = tuple(name for name in self._groups(self.columns[source]) if name not in made)
        name, columns = self._name(target.lower()), WINDOWED[target]
        path = f"anabranch.fuzz.functions:{target}"
        self._add(Custom(name, source, path, columns, window, self._every(window), by))

    def finish(self) -> Graph:
        """Outputs on what nobody consumes, at times on a stream within; what reaches no output goes."""
        dice = self.dice
        made = [operator.name for operator in self.operators]
        ends = [name for name in self.idle if name in made]
        streams = dice.sample(ends, 3)
        if len(streams) < 3 and dice.chance(0.2):
            within = [name for name in self.columns if name not in streams]
            streams += dice.sample(within, 1)
        outputs = tuple(
            Output(f"output{number + 1}", stream, "timestamp" if dice.chance(0.4) else None)
            for number, stream in enumerate(streams)
        )
        return prune(Graph("fuzzed", tuple(self.sources), tuple(self.operators), outputs))


def prune(graph: Graph) -> Graph:
    """The query without the sources and operators that reach no output."""
    needed = [output.stream for output in graph.outputs]
    for operator in reversed(graph.operators):
        if operator.name in needed:
            needed += operator.inputs
    return Graph(
        graph.name,
        tuple(source for source in graph.sources if source.name in needed),
        tuple(operator for operator in graph.operators if operator.name in needed),
        graph.outputs,
    )
