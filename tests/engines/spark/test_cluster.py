"""A standalone cluster from the pip package: a master and two workers, executors in processes of their
own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyspark
import pytest
from one_site import free_port
from test_driver import CHUNKS, Case

from anabranch.engines.spark.session import find_java

pytestmark = pytest.mark.slow


class Cluster:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        find_java(directory)
        self.port = free_port()
        self.processes: list[subprocess.Popen[bytes]] = []
        master = "org.apache.spark.deploy.master.Master"
        self._start(master, "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(free_port()))
        for number in range(2):
            work = directory / f"worker{number}"
            self._start(
                "org.apache.spark.deploy.worker.Worker",
                *("--host", "127.0.0.1", "--cores", "1", "--memory", "1g"),
                *("--work-dir", str(work), "--webui-port", str(free_port())),
                self.url,
            )
        self._wait_for_workers()

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def _start(self, *arguments: str) -> None:
        home = Path(pyspark.__file__).parent
        environment = os.environ | {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        log = (self.directory / f"{len(self.processes)}.log").open("wb")
        with log:
            self.processes.append(
                subprocess.Popen(
                    [str(home / "bin" / "spark-class"), *arguments],
                    env=environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _wait_for_workers(self) -> None:
        until = time.monotonic() + 120
        said = self.directory / "0.log"
        while said.read_text().count("Registering worker") < 2:
            assert time.monotonic() < until, said.read_text()
            time.sleep(0.1)

    def close(self) -> None:
        for process in reversed(self.processes):
            os.killpg(process.pid, signal.SIGTERM)
        for process in self.processes:
            process.wait(30)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "cluster")
    yield made
    made.close()


def test_a_fragment_on_a_cluster_is_the_ideal_one(cluster: Cluster, tmp_path: Path) -> None:
    case = Case(tmp_path / "site")
    site = case.site
    conf = {"spark.executor.memory": "512m", "spark.executor.cores": "1"}
    site.settings = msgspec.structs.replace(
        site.settings, master=cluster.url, partitions=2, split_bytes=2_000, conf=conf
    )
    try:
        site.start_driver()
        site.start_fragment()
        for chunk in range(CHUNKS):
            case.feed(chunk, chunk + 1)
        site.wait_until(site.finished)
        case.check()
        # Two executors took part.
        tasks = {piece for done, _ in site.delivered for piece in done.pieces}
        assert len({task.split(".")[1] for task in tasks}) > 1
        assert site.driver is not None
        assert site.driver.leave() == 0
    finally:
        site.close()
