"""What processes take: memory and processor time, by kind of process.

Memory is PSS: a page that several processes share counts once, a part with each. Where the system does not
tell PSS (it does on Linux), it is what is resident, which counts shared pages several times.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable

import psutil

KINDS = (
    ("anabranch.site.process", "supervisor"),
    ("anabranch.site.agent_process", "agent"),
    ("anabranch.engines.spark.driver", "spark driver"),
    ("anabranch.lab.plain_driver", "spark driver"),
    ("python_streaming", "spark source or sink"),
    ("pyspark.sql.worker", "spark planner"),
    ("pyspark.daemon", "spark worker"),
    ("nats-server", "log server"),
    ("java", "jvm"),
)
"""By a word of the command line; the first that fits."""


def kind_of(command: Iterable[str]) -> str:
    """
    >>> kind_of(["/usr/bin/python3", "-m", "pyspark.daemon", "pyspark.worker"])
    'spark worker'
    >>> kind_of(["/opt/jdk/bin/java", "-cp", "x", "org.apache.spark.deploy.SparkSubmit"])
    'jvm'
    """
    line = " ".join(command)
    return next((kind for word, kind in KINDS if word in line), "other")


def with_children(pid: int) -> list[psutil.Process]:
    """The process and all that it has started, whatever started them in turn."""
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    return []


def memory(processes: Iterable[psutil.Process]) -> dict[str, int]:
    """Bytes by kind."""
    taken: Counter[str] = Counter()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            told = process.memory_full_info()
            taken[_kind(process)] += int(getattr(told, "pss", told.rss))
    return dict(taken)


def count(processes: Iterable[psutil.Process]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            found[_kind(process)] += 1
    return dict(found)


class Meter:
    """Processor seconds by kind, from when it is made. A process that ends takes what it spent with it,
    unless one of the others has waited for it."""

    def __init__(self, processes: Iterable[psutil.Process]) -> None:
        self._before = _spent(processes)

    def spent(self, processes: Iterable[psutil.Process]) -> dict[str, float]:
        """By those that are there now."""
        seconds: dict[str, float] = {}
        for process, (kind, spent) in _spent(processes).items():
            before = self._before.get(process, ("", 0.0))[1]
            seconds[kind] = seconds.get(kind, 0.0) + spent - before
        return seconds


def _spent(processes: Iterable[psutil.Process]) -> dict[psutil.Process, tuple[str, float]]:
    found = {}
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            spent = times.user + times.system + times.children_user + times.children_system
            found[process] = (_kind(process), float(spent))
    return found


def _kind(process: psutil.Process) -> str:
    return kind_of(process.cmdline())
