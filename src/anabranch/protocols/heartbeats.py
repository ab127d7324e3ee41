"""Heartbeats: every site tells every other that it lives, and which plan it follows.

Nothing waits for them. They spread plans, by reconciliation: who hears of an older plan offers its own. And
they say whom it is worth asking.
"""

from __future__ import annotations

from anabranch.protocols.effects import Effect, Send
from anabranch.protocols.messages import Heartbeat, Version
from anabranch.protocols.settings import Settings
from anabranch.streams.punctuation import BEGINNING

MISSED = 3
"""Intervals without a heartbeat after which a site counts as silent."""


class Heartbeats:
    """Those of one site to the ``others``, and theirs."""

    def __init__(self, others: tuple[str, ...], settings: Settings) -> None:
        self._others = others
        self._interval = settings.heartbeat_interval
        self._beaten = BEGINNING
        self._heard: dict[str, int] = {}

    def on_tick(self, now: int, version: Version) -> list[Effect]:
        # A clock that was set back must not silence the site.
        if BEGINNING < self._beaten <= now < self._beaten + self._interval:
            return []
        self._beaten = now
        return [Send(site, Heartbeat(version)) for site in self._others]

    def on_heartbeat(self, now: int, sender: str) -> None:
        self._heard[sender] = now

    def is_silent(self, now: int, site: str) -> bool:
        """Whether ``site`` has been heard of, but not for long."""
        return now - self._heard.get(site, now) > MISSED * self._interval
