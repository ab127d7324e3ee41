"""Drawing a case: everything follows from (seed, index), by one generator, in one order."""

from __future__ import annotations

from anabranch.fuzz.case import Case, Klass, Setting
from anabranch.fuzz.dice import Dice
from anabranch.fuzz.networks import AMPLE, draw_topology
from anabranch.fuzz.placements import draw_plan, fan_out
from anabranch.fuzz.queries import draw_graph, expected_rows
from anabranch.fuzz.schedules import with_faults
from anabranch.fuzz.tuples import draw_table
from anabranch.graph import Graph
from anabranch.plan import Plan

SECOND = 1_000_000
BUDGET = 5_000
"""Records on branches that a case may be expected to need: some tenths of a second of simulation."""


def draw(seed: int, index: int) -> Case:
    """Case ``index`` of ``seed``."""
    dice = Dice(seed, index)
    klass: Klass = dice.weighted((("calm", 10), ("live", 45), ("outage", 33), ("loss", 12)))
    span = float(dice.pick((5, 6, 8, 12, 20)))
    begin = dice.weighted(((1_700_000_000 * SECOND, 60), (0, 15), (3 * SECOND, 15), (-7 * SECOND, 10)))
    if dice.chance(0.3):
        begin += dice.between(0, SECOND)
    graph = draw_graph(dice, span)
    topology = draw_topology(dice, begin, span, _retention(dice, klass))
    if klass in ("calm", "outage") and dice.chance(0.15):
        topology = topology.subset(topology.names[:1])
    plan, lifeline = draw_plan(dice, graph, topology.names)
    settings = _draw_settings(dice, klass)
    rows, span = _size(dice, graph, plan, span, settings)
    inputs = {
        source.name: draw_table(dice, source, rows[source.name], begin, span) for source in graph.sources
    }
    number, outside = dice.between(0, 2**31), dice.chance(0.4)
    case = Case(klass, graph, inputs, topology, plan, lifeline, (), number, settings, outside)
    return with_faults(dice, case, begin // SECOND, span)


def _retention(dice: Dice, klass: Klass) -> int:
    return dice.pick((500_000, SECOND, 2 * SECOND, 4 * SECOND)) if klass == "loss" else AMPLE


def _draw_settings(dice: Dice, klass: Klass) -> dict[str, Setting]:
    settings: dict[str, Setting] = {"punctuation_interval": dice.pick((SECOND // 4, SECOND, 3 * SECOND))}
    if dice.chance(0.3):
        settings["tick"] = SECOND // 2
    if dice.chance(0.4):
        settings["snapshot_interval"] = dice.pick((SECOND, 2 * SECOND))
    if dice.chance(0.3):
        settings["branch_window"] = dice.pick((8, 64))
    if klass == "loss":
        settings["gap_patience"] = dice.pick((3, 8)) * SECOND
    return settings


def _size(
    dice: Dice, graph: Graph, plan: Plan, span: float, settings: dict[str, Setting]
) -> tuple[dict[str, int], float]:
    """Rows for each source, and the span, such that the case stays within its budget."""
    carried = fan_out(plan, graph)
    branches = sum(carried.values())
    pause = settings["punctuation_interval"]
    assert isinstance(pause, int)
    while span > 4 and branches * span * SECOND / pause > BUDGET / 2:
        if pause < SECOND:
            settings["punctuation_interval"] = pause = SECOND
        else:
            span -= 1
    rows = {source.name: 0 if dice.chance(0.06) else dice.between(10, 60) for source in graph.sources}
    while max(rows.values()) > 6:
        expected = expected_rows(graph, rows, span)
        if sum(expected[stream] * count for stream, count in carried.items()) < BUDGET:
            break
        rows = {name: count * 4 // 5 for name, count in rows.items()}
    return rows, span
