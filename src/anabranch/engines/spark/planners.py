"""Python processes that Spark starts in order to plan a query, and keeps although it needs them no more: a
daemon of each kind and its worker, some 70 MB a pair.

A daemon that is gone is started again when it is wanted. A worker that waits to be used again is not missed
until it is used. So while queries are planned, workers are used once.
"""

from __future__ import annotations

import contextlib
from typing import Any

import psutil

_DAEMON = "pyspark.daemon"
_KINDS = ("lookup_data_sources", "create_data_source", "plan_data_source_read")
_REUSE = "spark.python.worker.reuse"


class Planners:
    """Of one session."""

    def __init__(self, spark: Any) -> None:
        self._conf = spark.sparkContext._conf
        self._jvm = spark.sparkContext._gateway.proc.pid
        self.needed = False

    def need(self) -> None:
        """A query is about to be planned."""
        self._conf.set(_REUSE, "false")
        self.needed = True

    def dismiss(self) -> None:
        """All queries have been planned: a batch of each is through."""
        self._conf.set(_REUSE, "true")
        self.needed = False
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self._jvm).children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    words = process.cmdline()
                    used_once = "SPARK_REUSE_WORKER" not in process.environ()
                    if used_once and _DAEMON in words and words[-1].rpartition(".")[2] in _KINDS:
                        process.terminate()
