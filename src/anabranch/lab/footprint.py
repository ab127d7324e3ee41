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


class Growth(msgspec.Struct, frozen=True):
    """Of something that was measured again and again: the medians of the first third of the samples and of
    the last, and the slope of the line through all of them, in their unit a minute."""

    first: float
    last: float
    slope_per_minute: float


def growth(seconds: Sequence[float], values: Sequence[float]) -> Growth:
    """
    >>> growth([0, 60, 120, 180, 240, 300], [10, 10, 11, 12, 12, 12])
    Growth(first=10.0, last=12.0, slope_per_minute=0.49)
    """
    third = max(1, len(values) // 3)
    slope = np.polyfit(np.asarray(seconds) / 60, values, 1)[0] if len(values) > 1 else 0.0
    first, last = float(np.median(values[:third])), float(np.median(values[-third:]))
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
