"""What live sites take up, looked at again and again: memory, and disk; and whether that grows."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import psutil

MB = 1e6
MINUTE = 60.0


class Growth(msgspec.Struct, frozen=True):
    """Of something that was measured again and again: the medians of the first third of the minutes and of
    the last, and the slope of the line through all of them, in their unit a minute."""

    first: float
    last: float
    slope_per_minute: float


def growth(seconds: Sequence[float], values: Sequence[float]) -> Growth:
    """What comes and goes within a minute is no growth: each minute counts as its median.

    >>> growth([0, 20, 40, 60, 80, 100, 120, 140, 160], [10, 99, 10, 11, 99, 11, 12, 99, 12])
    Growth(first=10.0, last=12.0, slope_per_minute=1.0)
    """
    minutes: dict[int, list[float]] = {}
    for at, value in zip(seconds, values, strict=True):
        minutes.setdefault(int(at // MINUTE), []).append(value)
    medians = [float(np.median(each)) for each in minutes.values()]
    third = max(1, len(medians) // 3)
    slope = np.polyfit(list(minutes), medians, 1)[0] if len(medians) > 1 else 0.0
    first, last = float(np.median(medians[:third])), float(np.median(medians[-third:]))
    return Growth(round(first, 1), round(last, 1), round(float(slope), 2))


def memory(processes: Sequence[psutil.Process]) -> float:
    """MB of the processes: what several share counts in parts (PSS) where the system tells, else in full."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.Error, OSError):
            full = process.memory_full_info()
            total += getattr(full, "pss", full.rss)
    return total / MB


def disk(directory: Path) -> float:
    """MB that are allocated to the files below ``directory``."""
    total = 0
    for at, _, files in os.walk(directory):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(at, name)).st_blocks * 512
    return total / MB
