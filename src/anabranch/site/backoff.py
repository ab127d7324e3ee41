"""How long to wait before the next attempt."""

from __future__ import annotations

import random


class Backoff:
    """Pauses that double from ``least`` to ``most`` seconds, each shortened by chance, so that those who lost
    the same server do not all come back at once."""

    def __init__(self, least: float = 0.05, most: float = 2.0) -> None:
        self._least = least
        self._most = most
        self._next = least

    def pause(self) -> float:
        pause, self._next = self._next, min(2 * self._next, self._most)
        return pause * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    def reset(self) -> None:
        self._next = self._least
