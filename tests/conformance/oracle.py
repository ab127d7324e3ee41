"""What every operator means, in plain Python, straight from the definitions: no increments, no batches.

Expressions are paired with Python functions here; that SQL is evaluated rightly is tested elsewhere.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from typing import NamedTuple

import customs
import numpy as np
import pyarrow as pa

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
    TopK,
    Union,
)
from anabranch.streams.hashing import custom_ids, join_ids, union_ids, window_ids
from anabranch.types import arrow_type

COLUMNS = (Column("g", "string"), Column("k", "bigint"), Column("x", "double"))


class Row(NamedTuple):
    ts: int
    hi: int
    lo: int
    values: dict


def _number(value):
    """NaN is greater than every number."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value)


def _greater(a, b):
    return None if a is None or b is None else _number(a) > _number(b)


def _or(a, b):
    return True if a or b else None if a is None or b is None else False


def _even_or_a(row):
    even = None if row["k"] is None else row["k"] % 2 == 0
    a = None if row["g"] is None else row["g"] == "a"
    return _or(even, a)


PREDICATES = {
    "x > 1": lambda row: _greater(row["x"], 1.0),
    "k % 2 = 0 OR g = 'a'": _even_or_a,
    "g IS NULL": lambda row: row["g"] is None,
    "true": lambda row: True,
    "k > right_k": lambda row: _greater(row["k"], row["right_k"]),
    "x > 1 OR right_x > 1": lambda row: _or(_greater(row["x"], 1.0), _greater(row["right_x"], 1.0)),
}

SCALARS = {
    "g": lambda row: row["g"],
    "k": lambda row: row["k"],
    "x": lambda row: row["x"],
    "n": lambda row: row["n"],
    "s": lambda row: row["s"],
    "shouted": lambda row: row["shouted"],
    "path": lambda row: row["path"],
    "CAST(part AS bigint)": lambda row: row["part"],
    "CAST(NULL AS string)": lambda row: None,
    "CAST(NULL AS double)": lambda row: None,
    "upper(g)": lambda row: None if row["g"] is None else row["g"].upper(),
    "k + 1": lambda row: None if row["k"] is None else row["k"] + 1,
    "x * 2": lambda row: None if row["x"] is None else row["x"] * 2,
}


def _known(rows, name):
    return [row[name] for row in rows if row[name] is not None]


def _sum(values):
    return functools.reduce(lambda a, b: a + b, values) if values else None


def _stddev(rows):
    values = _known(rows, "x")
    if len(values) < 2:
        return None
    mean = _sum(values) / len(values)
    return math.sqrt(_sum([(v - mean) ** 2 for v in values]) / (len(values) - 1))


def _max_by(rows):
    known = [row for row in rows if row["x"] is not None]
    return max(known, key=lambda row: _number(row["x"]))["k"] if known else None


AGGREGATES = {
    "count(*)": len,
    "count(k)": lambda rows: len(_known(rows, "k")),
    "sum(x)": lambda rows: _sum(_known(rows, "x")),
    "min(k)": lambda rows: min(_known(rows, "k"), default=None),
    "max(x)": lambda rows: max(_known(rows, "x"), key=_number, default=None),
    "avg(k)": lambda rows: _sum(_known(rows, "k")) / len(_known(rows, "k")) if _known(rows, "k") else None,
    "stddev(x)": _stddev,
    "max_by(k, x)": _max_by,
}


def canonical(row: Row):
    """By timestamp, then by column values, nulls first; what looks equal by id."""

    def key(value):
        if value is None:
            return (0, 0)
        return (1, _number(value)) if isinstance(value, float) else (1, value)

    return (row.ts, [key(value) for value in row.values.values()], row.hi, row.lo)


def group_key(values):
    """Null is a group, NaN is one, and the two zeros are the same."""
    return tuple("NaN" if isinstance(v, float) and math.isnan(v) else v for v in values)


def hashed(function, *numbers):
    hi, lo = function(*(np.array([n], np.int64) for n in numbers))
    return int(hi[0]), int(lo[0])


class Oracle:
    """The ideal streams of a graph whose sources yield ``inputs``; ``poison``: (operator, ts, hi, lo)."""

    def __init__(self, graph: Graph, inputs: dict[str, list[Row]]) -> None:
        self.graph = graph
        self.streams = dict(inputs)
        self.poison: list[tuple[str, int, int, int]] = []
        for operator in graph.operators:
            self.streams[operator.name] = self.evaluate(operator, [self.streams[i] for i in operator.inputs])

    def evaluate(self, operator: Operator, inputs: list[list[Row]]) -> list[Row]:
        match operator:
            case Filter():
                return [row for row in inputs[0] if PREDICATES[operator.predicate](row.values)]
            case Map():
                return [
                    row._replace(values={name: SCALARS[sql](row.values) for name, sql in operator.columns})
                    for row in inputs[0]
                ]
            case Union():
                return [
                    Row(
                        row.ts,
                        *hashed(lambda hi, lo, port=port: union_ids(hi, lo, port), row.hi, row.lo),
                        row.values,
                    )
                    for port, rows in enumerate(inputs)
                    for row in rows
                ]
            case Join():
                return self.join(operator, *inputs)
            case Aggregate():
                return self.aggregate(operator, inputs[0])
            case CountAggregate():
                return self.count_aggregate(operator, inputs[0])
            case TopK():
                return self.top_k(operator, inputs[0])
            case Custom(window=None):
                return self.custom(operator, inputs[0])
            case Custom():
                return self.custom_window(operator, inputs[0])
        raise AssertionError(operator)

    def join(self, operator: Join, left: list[Row], right: list[Row]) -> list[Row]:
        def equal(a, b):
            return a is not None and b is not None and group_key([a]) == group_key([b])

        pairs = []
        for a in left:
            for b in right:
                if abs(a.ts - b.ts) >= operator.within:
                    continue
                if not all(equal(a.values[name], b.values[name]) for name in operator.on):
                    continue
                values = dict(a.values)
                for name, value in b.values.items():
                    if name not in operator.on:
                        values["right_" + name if name in a.values else name] = value
                if operator.where is None or PREDICATES[operator.where](values):
                    pairs.append(Row(max(a.ts, b.ts), *hashed(join_ids, a.hi, a.lo, b.hi, b.lo), values))
        return pairs

    def windows(self, operator, rows: list[Row], by) -> dict:
        """(e, group) -> rows, for every multiple e of the slide with e - w <= ts < e."""
        found = defaultdict(list)
        for row in rows:
            first = -(-(row.ts + 1) // operator.every) * operator.every
            for e in range(first, row.ts + operator.window + 1, operator.every):
                assert e - operator.window <= row.ts < e
                found[e, group_key(row.values[name] for name in by)].append(row)
        return found

    def ids(self, operator, number: int, group: dict, *more: int) -> tuple[int, int]:
        types = {c.name: arrow_type(c.type) for c in self.graph.schema(operator.input)}
        columns = [pa.array([value], types[name]) for name, value in group.items()]
        return hashed(lambda first, *rest: window_ids(operator.name, first, columns, *rest), number, *more)

    def aggregate(self, operator: Aggregate, rows: list[Row]) -> list[Row]:
        results = []
        for (e, _), members in self.windows(operator, rows, operator.by).items():
            members.sort(key=lambda row: row[:3])
            group = {name: members[0].values[name] for name in operator.by}
            summary = {
                name: AGGREGATES[sql]([m.values for m in members]) for name, sql in operator.aggregates
            }
            values = {"window_start": e - operator.window, "window_end": e} | group | summary
            results.append(Row(e, *self.ids(operator, e, group), values))
        return results

    def count_aggregate(self, operator: CountAggregate, rows: list[Row]) -> list[Row]:
        groups = defaultdict(list)
        for row in sorted(rows, key=canonical):
            groups[group_key(row.values[name] for name in operator.by)].append(row)
        results = []
        for members in groups.values():
            for n in range(operator.count, len(members) + 1, operator.every):
                window = members[n - operator.count : n]
                group = {name: window[-1].values[name] for name in operator.by}
                summary = {
                    name: AGGREGATES[sql]([m.values for m in window]) for name, sql in operator.aggregates
                }
                values = {"window_start": window[0].ts, "window_end": window[-1].ts} | group | summary
                results.append(Row(window[-1].ts, *self.ids(operator, n, group), values))
        return results

    def top_k(self, operator: TopK, rows: list[Row]) -> list[Row]:
        results = []
        for (e, _), members in self.windows(operator, rows, ()).items():
            members.sort(key=canonical)
            scored = [(SCALARS[operator.by](row.values), row) for row in members]
            null = [row for score, row in scored if score is None]
            known = [(score, row) for score, row in scored if score is not None]
            if known and isinstance(known[0][0], str):
                known.sort(key=lambda pair: pair[0], reverse=True)
            else:
                known.sort(key=lambda pair: _number(pair[0]), reverse=True)
            best = [row for _, row in known] + null
            for rank, row in enumerate(best[: operator.k]):
                values = {"window_start": e - operator.window, "window_end": e} | row.values
                results.append(Row(e, *self.ids(operator, e, {}, rank), values))
        return results

    def custom(self, operator: Custom, rows: list[Row]) -> list[Row]:
        results = []
        for row in rows:
            k = row.values["k"]
            if operator.target == "customs:shout":
                g = row.values["g"]
                made = [{"shouted": None if g is None else g.upper(), "k": k}]
            elif k is not None and k < 0:
                self.poison.append((operator.name, row.ts, row.hi, row.lo))
                continue
            else:
                made = [{"part": part} for part in range(min(k or 0, 3))]
            for ordinal, values in enumerate(made):
                results.append(Row(row.ts, *hashed(custom_ids, row.hi, row.lo, ordinal), values))
        return results

    def custom_window(self, operator: Custom, rows: list[Row]) -> list[Row]:
        alive = [row for row in rows if row.values["k"] != 3]
        self.poison += [
            (operator.name, row.ts, row.hi, row.lo)
            for row in rows
            if row.values["k"] == 3 and self.windows(operator, [row], ())
        ]
        results = []
        for (e, _), members in self.windows(operator, alive, operator.by).items():
            members.sort(key=canonical)
            group = {name: members[0].values[name] for name in operator.by}
            hi, lo = self.ids(operator, e, group)
            path = []
            for row in members:
                if path and path[-1] == 2 and row.values["k"] == 2:
                    self.poison.append((operator.name, row.ts, row.hi, row.lo))
                else:
                    path.append(row.values["k"])
            if path == [1]:
                self.poison.append((operator.name, e, hi, lo))
                continue
            values = {"window_start": e - operator.window, "window_end": e} | group
            results.append(Row(e, hi, lo, values | customs.Path().final(path)))
        return results
