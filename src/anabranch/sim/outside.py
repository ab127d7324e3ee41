"""Engine processes of the simulated sites: started, fed, answered, killed, on the one queue of events."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from anabranch.engines.arrow import ArrowEngine
from anabranch.protocols.effects import Answer, Effect, StartEngine, StopEngine
from anabranch.sim.engine import SimulatedEngine
from anabranch.sim.faults import EngineCrash
from anabranch.sim.nodes import EngineNode, SiteNode

MS = 1_000
BOOT = (300 * MS, 1500 * MS)
PLAN = (5 * MS, 60 * MS)
COMPUTE = (20 * MS, 250 * MS)
TWICE = 0.1
"""How often a batch is handed over twice, as happens when an answer is lost."""


class Clockwork(Protocol):
    """What engines need of the simulation."""

    now: int

    def at(self, time: int, action: Callable[..., None], *arguments: object) -> None: ...
    def execute(self, node: SiteNode, effects: list[Effect]) -> None: ...


class Engines:
    """``engine_of``: from a fragment's operators, its exports and the site."""

    def __init__(
        self,
        clockwork: Clockwork,
        engine_of: Callable[[tuple[str, ...], tuple[str, ...], str], ArrowEngine],
        seed: int,
    ) -> None:
        self._clockwork = clockwork
        self._engine_of = engine_of
        self._random = Random(seed)  # noqa: S311 - a simulation
        self._runs = 0

    def start(self, site: SiteNode, effect: StartEngine) -> None:
        node = EngineNode(effect.start)
        site.engines[effect.start.fragment] = node
        self._later(BOOT, self._up, site, node)

    def stop(self, site: SiteNode, effect: StopEngine) -> None:
        site.engines.pop(effect.fragment, None)
        site.checkpoints.pop(effect.fragment, None)

    def answer(self, site: SiteNode, effect: Answer) -> None:
        node = site.engines.get(effect.fragment)
        if node is None or node.engine is None or node.engine.checkpoint.run != effect.run:
            return
        if not effect.taken:
            self._fail(site, node)
        elif node.engine.commit(effect.run, effect.batch):
            node.busy = False
            self.wake(site)

    def wake(self, site: SiteNode) -> None:
        """There may be news for the site's engines."""
        for node in site.engines.values():
            if node.engine is not None and not node.busy:
                node.busy = True
                self._later(PLAN, self._plan, site, node)

    def crash(self, site: SiteNode, fault: EngineCrash) -> None:
        if not fault.keep_checkpoint:
            site.checkpoints.clear()
        for node in list(site.engines.values()):
            self._fail(site, node)

    # --- what happens to one engine

    def _later(
        self, wait: tuple[int, int], action: Callable[..., None], site: SiteNode, node: EngineNode
    ) -> None:
        self._clockwork.at(self._clockwork.now + self._random.randint(*wait), action, site, node)

    def _lives(self, site: SiteNode, node: EngineNode) -> bool:
        return site.agent is not None and site.engines.get(node.start.fragment) is node

    def _up(self, site: SiteNode, node: EngineNode) -> None:
        if not self._lives(site, node):
            return
        assert site.agent is not None
        self._runs += 1
        node.engine = SimulatedEngine(
            node.start,
            site.disk,
            site.checkpoints,
            lambda operators, exports: self._engine_of(operators, exports, site.name),
            f"{site.name}/{self._runs}",
            self._random,
        )
        run = node.engine.checkpoint.run
        now = site.local(self._clockwork.now)
        self._clockwork.execute(site, site.agent.on_engine_started(now, node.start.fragment, run))
        self.wake(site)

    def _plan(self, site: SiteNode, node: EngineNode) -> None:
        if not self._lives(site, node) or node.engine is None:
            return
        try:
            computed = node.engine.batch()
        except LookupError:
            self._fail(site, node)
            return
        if computed is None:
            node.busy = False
            return
        self._later(COMPUTE, self._hand_over, site, node)
        if self._random.random() < TWICE:
            self._later(COMPUTE, self._hand_over, site, node)

    def _hand_over(self, site: SiteNode, node: EngineNode) -> None:
        if self._lives(site, node) and site.agent is not None and node.engine is not None:
            computed = node.engine.computed
            if computed is not None:
                now = site.local(self._clockwork.now)
                self._clockwork.execute(site, site.agent.on_computed(now, computed))

    def _fail(self, site: SiteNode, node: EngineNode) -> None:
        node.engine = None
        self._later(BOOT, self._gone, site, node)

    def _gone(self, site: SiteNode, node: EngineNode) -> None:
        if self._lives(site, node) and site.agent is not None:
            del site.engines[node.start.fragment]
            now = site.local(self._clockwork.now)
            self._clockwork.execute(site, site.agent.on_engine_failed(now, node.start.fragment))
