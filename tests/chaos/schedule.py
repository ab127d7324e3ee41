"""Drawing what befalls live sites, one trouble after the other, and the laws that a schedule keeps.

Before each round every site is well again, and all logs hold what their consumers may need. So what a round
must not do is to take away what it alone still has: when a site that is an entry point loses its log, nothing
else happens to anybody, and no two logs are lost in one round. Everything else may happen at once, also where
it leaves an operator without a live replica for a while: then nothing flows, and nothing is lost.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import msgspec
from scenes import SITES, Scene

from anabranch.lab.live_faults import Fault, Kill, KillProcess, StepClock, end_of
from anabranch.link_faults import Cut, Stall

STALL = 20.0
TOGETHER = 0.3
"""How often a trouble comes while another one lasts."""


class Trouble(msgspec.Struct, frozen=True):
    """One fault of those that are counted: a link is cut in both directions."""

    kind: str
    faults: tuple[Fault, ...]

    @property
    def end(self) -> float:
        return max(map(end_of, self.faults))


Round = tuple[Trouble, ...]


def schedule(scene: Scene, seed: int, count: int) -> list[Round]:
    """``count`` troubles; no kind comes again before all have been."""
    rng = random.Random(f"{seed} {scene.name}")
    kinds = _kinds(rng)
    rounds: list[Round] = []
    while (left := count - sum(map(len, rounds))) > 0:
        first = DRAWS[next(kinds)](rng, scene)
        found: Round = (first,)
        if left > 1 and rng.random() < TOGETHER:
            second = DRAWS[next(kinds)](rng, scene)
            both = (first, second)
            found = both if lawful(scene, both) else found
            rounds += [found] if found is both else [found, (second,)]
        else:
            rounds.append(found)
    return rounds


def lawful(scene: Scene, round: Round) -> bool:
    hit = [fault.site for trouble in round for fault in trouble.faults if not isinstance(fault, Cut | Stall)]
    lost = [f.site for trouble in round for f in trouble.faults if isinstance(f, Kill) and f.lose_log]
    if len(round) > 1 and any(site in scene.entries for site in lost):
        return False
    # A process cannot be killed that does not run.
    return len(lost) < 2 and len(set(hit)) == len(hit)


def _kinds(rng: random.Random) -> Iterator[str]:
    while True:
        yield from rng.sample(sorted(DRAWS), len(DRAWS))


def _process(kind: str) -> Callable[[random.Random, Scene], Trouble]:
    def draw(rng: random.Random, scene: Scene) -> Trouble:
        sites = scene.engines if kind == "driver" else SITES
        return Trouble(kind, (KillProcess(rng.choice(sites), kind, _soon(rng)),))

    return draw


def _site(rng: random.Random, scene: Scene) -> Trouble:
    at = _soon(rng)
    return Trouble("site", (Kill(rng.choice(SITES), at, at + rng.uniform(0.2, 8.0)),))


def _lost(rng: random.Random, scene: Scene) -> Trouble:
    at = _soon(rng)
    return Trouble("lost", (Kill(rng.choice(SITES), at, at + rng.uniform(0.2, 5.0), lose_log=True),))


def _cut(rng: random.Random, scene: Scene) -> Trouble:
    a, b = rng.sample(SITES, 2)
    at = _soon(rng)
    until = at + rng.uniform(0.5, 12.0)
    return Trouble("cut", (Cut(a, b, at, until), Cut(b, a, at, until)))


def _stall(rng: random.Random, scene: Scene) -> Trouble:
    a, b = rng.sample(SITES, 2)
    at = _soon(rng)
    both = (Stall(a, b, at, at + STALL), Stall(b, a, at, at + STALL))
    return Trouble("stall", both if rng.random() < 0.5 else both[:1])


def _clock(rng: random.Random, scene: Scene) -> Trouble:
    site = rng.choice([site for site in SITES if site not in scene.entries])
    at = _soon(rng)
    return Trouble("clock", (StepClock(site, rng.choice((30.0, -30.0)), at, at + rng.uniform(2.0, 8.0)),))


def _soon(rng: random.Random) -> float:
    return rng.uniform(0.0, 3.0)


DRAWS: dict[str, Callable[[random.Random, Scene], Trouble]] = {
    "agent": _process("agent"),
    "nats": _process("nats"),
    "driver": _process("driver"),
    "site": _site,
    "lost": _lost,
    "cut": _cut,
    "stall": _stall,
    "clock": _clock,
}
