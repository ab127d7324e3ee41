"""SQL for drawn queries: predicates, expressions and aggregates over whatever columns a stream has."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.fuzz.dice import Dice
from anabranch.graph import Column

PREDICATES = {
    "string": (
        "{c} = 'a'",
        "{c} <> 'b'",
        "{c} IN ('a', 'c')",
        "{c} LIKE '%b%'",
        "{c} IS NOT NULL",
        "length({c}) > 0",
        "coalesce({c}, 'z') >= 'b'",
    ),
    "int": ("{c} >= 1", "{c} % 2 = 0", "{c} IS NULL OR {c} < 2", "{c} BETWEEN 1 AND 3", "NOT ({c} = 2)"),
    "bigint": ("{c} > 1", "{c} <> 2", "{c} IS NOT NULL", "{c} % 3 < 2", "{c} IN (0, 1, 2, 5)"),
    "double": ("{c} > 0.3", "{c} <= 1.5", "{c} <=> {c}", "{c} IS NOT NULL", "NOT ({c} < 1.0)"),
    "boolean": ("{c}", "NOT {c}", "coalesce({c}, true)", "{c} IS NULL OR {c}"),
    "timestamp": ("{c} IS NOT NULL", "{c} <= ts"),
}
"""Most pass about half of the rows, some by a null that is neither true nor false."""

SAME_TYPE = {
    "string": ("{c}", "upper({c})", "concat({c}, 'x')", "coalesce({c}, 'none')", "substring({c}, 1, 1)"),
    "int": ("{c}", "{c} + 1", "{c} % 2", "coalesce({c}, 0)", "abs({c})"),
    "bigint": (
        "{c}",
        "{c} * 3",
        "{c} - 1",
        "coalesce({c}, CAST(7 AS bigint))",
        "greatest({c}, CAST(1 AS bigint))",
    ),
    "double": ("{c}", "{c} * 2.5", "{c} + 0.1", "sqrt(abs({c}))", "coalesce({c}, 0.25)", "{c} / 3"),
    "boolean": ("{c}", "NOT {c}", "coalesce({c}, false)"),
    "timestamp": ("{c}", "coalesce({c}, ts)"),
}
"""Expressions that keep a column's type, so that a stream can be united with its own image."""

DERIVED = {
    "string": ("length({c})", "CASE WHEN {c} = 'a' THEN 1 WHEN {c} = 'b' THEN 2 END", "lower({c})"),
    "int": ("CAST({c} AS double) / 2", "CAST({c} AS string)", "{c} > 1"),
    "bigint": ("{c} / 4", "CASE WHEN {c} > 2 THEN 'many' ELSE 'few' END", "CAST({c} AS string)"),
    "double": ("floor({c})", "round({c} * 10)", "{c} > 1", "pow({c}, 2)"),
    "boolean": ("CASE WHEN {c} THEN 'yes' WHEN NOT {c} THEN 'no' END", "CAST({c} AS int)"),
    "timestamp": ("{c} < ts", "CAST({c} AS bigint)"),
}

AGGREGATES = {
    "string": ("count({c})", "min({c})", "max({c})"),
    "int": ("sum({c})", "min({c})", "max({c})", "avg({c})", "stddev({c})"),
    "bigint": ("sum({c})", "max({c})", "avg({c})", "sum({c} + 1) - count({c})"),
    "double": ("sum({c})", "avg({c})", "min({c})", "max({c}) - min({c})", "stddev({c})", "sum({c} * 0.1)"),
    "boolean": ("count({c})", "max({c})"),
    "timestamp": ("max({c})", "count({c})"),
}


def predicate(dice: Dice, columns: Sequence[Column]) -> str:
    column = dice.pick(columns)
    phrase = dice.pick(PREDICATES[column.type]).format(c=column.name)
    if dice.chance(0.25):
        other = dice.pick(columns)
        joint = dice.pick(("AND", "OR"))
        return f"({phrase}) {joint} ({dice.pick(PREDICATES[other.type]).format(c=other.name)})"
    return phrase


def image(dice: Dice, columns: Sequence[Column]) -> tuple[tuple[str, str], ...]:
    """A Map that keeps the schema."""
    return tuple((column.name, dice.pick(SAME_TYPE[column.type]).format(c=column.name)) for column in columns)


def derivation(dice: Dice, columns: Sequence[Column]) -> tuple[tuple[str, str], ...]:
    """A Map that changes it: some of the columns, and a new one or two."""
    kept = dice.some(columns, 0.6)
    made = [(column.name, column.name) for column in kept]
    for number in range(1 if made else 2):
        column = dice.pick(columns)
        made.append((f"made{number}", dice.pick(DERIVED[column.type]).format(c=column.name)))
    if dice.chance(0.15):
        made.append(("at", "ts"))
    taken: dict[str, str] = {}
    for name, expression in made:
        taken.setdefault(name, expression)
    return tuple(taken.items())


def aggregates(dice: Dice, columns: Sequence[Column], taken: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """One to three, under names that are not ``taken``."""
    chosen = ["count(*)"] if dice.chance(0.6) else []
    while not chosen or (len(chosen) < 3 and dice.chance(0.5)):
        column = dice.pick(columns)
        if dice.chance(0.15):
            other = dice.pick(columns)
            chosen.append(f"{dice.pick(('min_by', 'max_by'))}({column.name}, {other.name})")
        else:
            chosen.append(dice.pick(AGGREGATES[column.type]).format(c=column.name))
    free = [
        name
        for name in ("n", "worst", "total", "n2", "worst2", "total2", "n3", "worst3")
        if name not in taken
    ]
    return tuple(zip(free, chosen, strict=False))
