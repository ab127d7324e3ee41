"""A site's clock: microseconds UTC, and as far off as somebody has set it."""

from __future__ import annotations

import time
from pathlib import Path


class Clock:
    """``offset``: a file with the microseconds that this clock is ahead; none: it is right. Read again with
    :meth:`adjust`."""

    def __init__(self, offset: Path | None = None) -> None:
        self._file = offset
        self._offset = 0
        self.adjust()

    def __call__(self) -> int:
        return time.time_ns() // 1000 + self._offset

    def adjust(self) -> None:
        if self._file is not None and self._file.is_file():
            self._offset = int(self._file.read_text("utf-8"))
