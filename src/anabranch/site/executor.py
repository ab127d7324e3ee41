"""Carries out what protocols ask for: effects in order, each by the method that a table names for it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from anabranch.protocols.effects import Effect

Table = dict[type, Callable[[Any], None]]


class Executor:
    """``failed`` is told once when a protocol or an effect raises: from then on nothing is done any more, as
    after a crash."""

    def __init__(self, table: Table, failed: Callable[[BaseException], None]) -> None:
        self.over = False
        self._table = table
        self._failed = failed
        self._work: deque[Effect] = deque()
        self._working = False
        self._timers: set[asyncio.TimerHandle] = set()

    def do(self, step: Callable[..., Iterable[Effect] | None], *arguments: Any) -> None:
        """One step of a protocol, its effects, and those they lead to at once, in order."""
        if self.over:
            return
        try:
            self._work.extend(step(*arguments) or ())
            if self._working:
                return
            self._working = True
            while self._work and not self.over:
                effect = self._work.popleft()
                self._table[type(effect)](effect)
            self._working = False
        except Exception as error:
            self.end()
            self._failed(error)

    def after(self, microseconds: int, step: Callable[..., Any], *arguments: Any) -> None:
        """``step`` in so many microseconds, unless it is over by then."""

        def due() -> None:
            self._timers.discard(handle)
            step(*arguments)

        handle = asyncio.get_running_loop().call_later(max(1, microseconds) / 1e6, due)
        self._timers.add(handle)

    def end(self) -> None:
        self.over = True
        self._work.clear()
        for handle in self._timers:
            handle.cancel()
        self._timers.clear()
