"""Drawing inputs: in bursts and after pauses, out of order, equal in time or whole, with nulls and NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from anabranch.fuzz.dice import Dice
from anabranch.graph import Source
from anabranch.streams.batch import TIMESTAMP
from anabranch.types import arrow_type

DOMAINS: dict[str, tuple[Any, ...]] = {
    "string": ("a", "b", "c", "", "ab"),
    "int": (0, 1, 2, 3, -1),
    "bigint": (0, 1, 2, 5, 2**40, -3),
    "double": (0.1, 0.2, 0.25, 1.1, 2.0, -0.7, 0.0, -0.0, 1e16, 3.3, float("nan")),
    "boolean": (True, False),
}


def draw_table(dice: Dice, source: Source, rows: int, begin: int, span: float) -> pa.Table:
    """``rows`` tuples within ``span`` seconds from ``begin`` (microseconds), in the order of their arrival.

    A source with a lateness gets a column ``arrival``; its tuples come up to that much late, a few later.
    """
    times = _times(dice, rows, begin, int(span * 1e6))
    delays = [_delay(dice, source.lateness) if source.lateness else 0 for _ in times]
    arrivals = sorted((ts + delay, ts) for ts, delay in zip(times, delays, strict=True))
    values = [_row(dice, source) for _ in arrivals]
    for row in range(1, rows):
        if dice.chance(0.06):
            arrivals[row] = arrivals[row - 1]
            values[row] = values[row - 1]
    columns = {"ts": _timestamps([ts for _, ts in arrivals])}
    for number, column in enumerate(source.columns):
        columns[column.name] = pa.array([row[number] for row in values], arrow_type(column.type))
    if source.lateness:
        columns["arrival"] = _timestamps([arrival for arrival, _ in arrivals])
    return pa.table(columns)


def _timestamps(times: Sequence[int]) -> pa.Array:
    return pa.array(times, pa.int64()).view(TIMESTAMP)


def _times(dice: Dice, rows: int, begin: int, span: int) -> list[int]:
    """Timestamps in one of several manners: even, crowded, in bursts of one instant, with a long pause."""
    manner = dice.weighted((("even", 45), ("bursts", 20), ("pause", 20), ("crowd", 15)))
    grid = dice.pick((1, 1000, 100_000, 250_000))
    low, high = 0, span
    if manner == "crowd":
        low = dice.between(0, span // 2)
        high = low + span // 5
    instants = [dice.between(0, span) for _ in range(4)]
    times = []
    for _ in range(rows):
        offset = dice.between(low, high)
        if manner == "bursts" and dice.chance(0.6):
            offset = dice.pick(instants)
        if manner == "pause" and span * 2 // 5 < offset < span * 4 // 5:
            offset -= span * 2 // 5
        times.append(begin + offset // grid * grid)
    return sorted(times)


def _delay(dice: Dice, lateness: int) -> int:
    if dice.chance(0.03):
        return lateness + dice.between(1, lateness)
    return dice.weighted(((0, 40), (dice.between(0, lateness), 55), (lateness, 5)))


def _row(dice: Dice, source: Source) -> list[Any]:
    return [None if dice.chance(0.12) else dice.pick(DOMAINS[column.type]) for column in source.columns]
