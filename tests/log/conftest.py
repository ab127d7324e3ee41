"""A real log server on a free port of this machine, gone when the test is."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.log.server import Server, ServerSettings


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(ServerSettings("test", tmp_path / "nats", port=free_port()), bound=True)
    running.start()
    yield running
    running.stop()
