"""Who takes part in a simulated run: sites, applications and producers, each at the place of some site."""

from __future__ import annotations

from anabranch.protocols.agent import Agent
from anabranch.protocols.application import Application
from anabranch.protocols.effects import EngineStart
from anabranch.protocols.producer import Producer
from anabranch.sim.disk import Connection, Disk
from anabranch.sim.engine import Kept, SimulatedEngine
from anabranch.streams.batch import Batch

Offer = tuple[int, Batch | None]
"""What reaches a producer, and when; None: that was all."""


class EngineNode:
    """An engine process: booting while ``engine`` is None."""

    def __init__(self, start: EngineStart) -> None:
        self.start = start
        self.engine: SimulatedEngine | None = None
        self.busy = False


class SiteNode:
    """A site: its agent of this life (None while it is down), its disk and its clock."""

    def __init__(self, name: str) -> None:
        self.name = self.place = name
        self.agent: Agent | None = None
        self.life = 0
        self.disk = Disk()
        self.disk_next = self.disk_free = 0
        """When the last write that is known of begins, and ends."""
        self.disk_queue = 0
        self.engines: dict[str, EngineNode] = {}
        """Engines that are processes of their own, by fragment, and what they keep on the site's disk."""
        self.checkpoints: dict[str, Kept] = {}
        self.connections: dict[str, dict[str, Connection]] = {}
        """By stream and consumer."""
        self.clock: tuple[int, int, float] = (0, 0, 0.0)

    @property
    def all_connections(self) -> list[Connection]:
        return [c for of_stream in self.connections.values() for c in of_stream.values()]

    def local(self, now: int) -> int:
        by, since, skew = self.clock
        return now + by + int((now - since) * skew) if by or skew else now


class ApplicationNode:
    def __init__(self, application: Application, place: str) -> None:
        self.application = application
        self.name = application.name
        self.place = place
        self.delivered: list[tuple[int, Batch]] = []
        self.complete_at: int | None = None


class ProducerNode:
    def __init__(self, producer: Producer, name: str, place: str) -> None:
        self.producer = producer
        self.name = name
        self.place = place
        self.bursts: list[tuple[int, int]] = []


Node = SiteNode | ApplicationNode | ProducerNode
