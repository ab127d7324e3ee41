"""Drawing topologies: 2 to 12 sites, near and far; links that vary over time, by direction, or are narrow."""

from __future__ import annotations

from itertools import permutations

from anabranch.fuzz.dice import Dice
from anabranch.topology import Link, Site, Topology, constant

FARTHEST = 400_000
AMPLE = 600_000_000


def draw_topology(dice: Dice, begin: int, span: float, retention: int = AMPLE) -> Topology:
    """A network whose delays vary, where they do, within ``span`` seconds from ``begin`` (microseconds)."""
    count = dice.weighted(((2, 15), (3, 20), (4, 18), (5, 14), (6, 10), (7, 7), (8, 6), (10, 5), (12, 5)))
    names = [f"s{number + 1}" for number in range(count)]
    reach = dice.pick((20_000, 100_000, FARTHEST, FARTHEST))
    restless = dice.pick((0.0, 0.0, 0.3))
    narrow = dice.pick((0.0, 0.0, 0.2))
    base = {(a, b): _delay(dice, reach) for a, b in permutations(names, 2) if a < b}
    links = []
    for a, b in permutations(names, 2):
        delay = base[min(a, b), max(a, b)]
        if dice.chance(0.2):
            delay = _delay(dice, reach)
        bandwidth = float(dice.pick((50_000, 200_000, 1_000_000))) if dice.chance(narrow) else 0.0
        link = constant(a, b, delay, bandwidth)
        links.append(_restless(dice, link, begin, span) if dice.chance(restless) else link)
    return Topology(tuple(Site(name, retention=retention) for name in names), tuple(links))


def _delay(dice: Dice, reach: int) -> int:
    return dice.weighted(((0, 8), (dice.between(1, 5) * 1000, 22), (dice.between(1, reach), 70)))


def _restless(dice: Dice, link: Link, begin: int, span: float) -> Link:
    at = begin
    times, delays = [], []
    for _ in range(dice.between(2, 6)):
        times.append(at)
        delays.append(min(FARTHEST, link.delay[0] * dice.between(50, 250) // 100))
        at += int(dice.uniform(0.2, span / 2) * 1e6)
    return Link(link.source, link.target, tuple(times), tuple(delays), link.bandwidth)
