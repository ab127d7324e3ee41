"""How soon after a batch the next one may begin.

Each batch costs about the same, whatever it brings; so what a query takes of a machine is a matter of how
many there are. Where the machine has processor to spare they follow each other quickly. Where it has none,
each query begins its batches later, until there is some again: several sites on one machine, or a site that
begins again beside others, leave each other room.

>>> pace = Pace(0.2)
>>> for busy in (0.9, 0.9, 0.9): pace.feel(busy)
>>> round(pace.seconds, 2)
0.39
>>> for _ in range(10): pace.feel(0.3)
>>> pace.seconds
0.2
"""

from __future__ import annotations

CROWDED, FREE = 0.75, 0.6
"""Shares of the machine's processors that are in use."""
_MORE, _LESS = 1.25, 0.9
_MOST = 3.0


class Pace:
    """``least``: seconds between the beginnings of two batches where nothing else is going on."""

    def __init__(self, least: float) -> None:
        self.seconds = least
        self._least = least

    def feel(self, busy: float) -> None:
        """``busy``: the share of the processors that was in use since the last batch."""
        if busy > CROWDED:
            self.seconds = min(self.seconds * _MORE, self._least * _MOST)
        elif busy < FREE:
            self.seconds = max(self.seconds * _LESS, self._least)
