"""A site as processes: ``python -m anabranch.site.process CONFIG.json`` runs the site's log server and its
agent, starts again what dies, and gives up aloud when that does not help.

Nothing outlives this process: the kernel kills the children of a parent that is gone, where it can, and the
agent ends with its standard input everywhere.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from anabranch.log.server import Server, ServerError, ServerSettings
from anabranch.site.backoff import Backoff
from anabranch.site.journal import Journal, words_to

MOST_DEATHS = 8
"""Deaths of one child within a minute after which starting it again does not help."""
_STOP_PATIENCE = 8.0


class ConfigError(ValueError):
    """A configuration that cannot be used: the sentence says where and what."""


class Site(msgspec.Struct, frozen=True):
    """The part of :class:`anabranch.site.config.SiteConfig` that a supervisor needs: it loads nothing that
    takes memory."""

    site: str
    directory: Path
    log: ServerSettings | None = None
    bound: bool = False

    @staticmethod
    def load(path: Path) -> Site:
        try:
            return msgspec.json.decode(path.read_bytes(), type=Site, dec_hook=lambda kind, value: kind(value))
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror or error}); check the path") from None
        except msgspec.DecodeError as error:
            raise ConfigError(f"{path}: {error}") from None


class GivenUp(RuntimeError):
    """A child that does not stay up: the sentence says which and where to look."""


class Child:
    """One process that is kept running."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.process: subprocess.Popen[bytes] | None = None
        self.due = 0.0
        self._deaths: list[float] = []
        self._backoff = Backoff(0.05, 2.0)
        self._pid_file = directory / f"{name}.pid"

    def started(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._pid_file.write_text(str(process.pid), "utf-8")

    def died(self) -> int | None:
        """Its exit status, once, if it has ended."""
        if self.process is None or self.process.poll() is None:
            return None
        status = self.process.returncode
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process = None
        self._pid_file.unlink(missing_ok=True)
        self.ended(status)
        return status

    def ended(self, status: int) -> None:
        """It is due again after a pause, unless that has been so too often."""
        now = time.monotonic()
        if self._deaths and now - self._deaths[-1] > 30:
            self._backoff.reset()
        self._deaths = [*self._deaths, now][-MOST_DEATHS:]
        if len(self._deaths) == MOST_DEATHS and now - self._deaths[0] < 60:
            raise GivenUp(
                f"{self.name} has ended {MOST_DEATHS} times within a minute, last with status {status}; "
                f"look at the logs beside {self._pid_file}"
            )
        self.due = now + self._backoff.pause()

    @property
    def waits(self) -> bool:
        return self.process is None and time.monotonic() >= self.due


class Supervisor:
    """Of one site."""

    def __init__(self, config: Site, path: Path) -> None:
        directory = config.directory
        directory.mkdir(parents=True, exist_ok=True)
        self.config = config
        self.journal = Journal(directory / "site.jsonl", site=config.site)
        self._path = path
        self._log = Child("nats", directory) if config.log is not None else None
        self._agent = Child("agent", directory)
        self._stopping = False

    def run(self) -> int:
        """Until it is told to stop, or gives up; the exit status."""
        wake, signalled = os.pipe()
        os.set_blocking(signalled, False)
        signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with selectors.DefaultSelector() as selector:
            selector.register(wake, selectors.EVENT_READ)
            if self.config.bound:
                selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
            try:
                while not self._stopping:
                    self._tend()
                    for key, _ in selector.select(self._pause()):
                        if not os.read(key.fd, 512) and key.fd != wake:
                            self._stopping = True
            except (GivenUp, ServerError) as error:
                self.journal.write("given up", why=str(error))
                print(f"site {self.config.site}: {error}", file=sys.stderr)
                return 1
            finally:
                self._stop()
        return 0

    def _on_stop(self, number: int, frame: object) -> None:
        self._stopping = True

    def _pause(self) -> float | None:
        """Until the next child is to be started; none: until something happens."""
        children = [c for c in (self._log, self._agent) if c is not None and c.process is None]
        if not children:
            return None
        return max(0.01, min(c.due for c in children) - time.monotonic())

    def _tend(self) -> None:
        for child in (self._log, self._agent):
            status = None if child is None else child.died()
            if child is not None and status is not None:
                self.journal.write("ended", child=child.name, status=status)
        if self._log is not None and self._log.waits:
            self._start_log(self._log)
        if self._agent.waits:
            self._start_agent()

    def _start_log(self, child: Child) -> None:
        assert self.config.log is not None
        server = Server(self.config.log, bound=True)
        try:
            server.start()
        except ServerError as error:
            # As a death: it may have been only the port that was not free yet.
            self.journal.write("not started", child=child.name, why=str(error))
            child.ended(1)
            return
        assert server.process is not None
        child.started(server.process)
        self.journal.write("started", child=child.name, pid=server.process.pid)

    def _start_agent(self) -> None:
        directory = self.config.directory
        with words_to(directory / "agent.err") as errors:
            process = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-m", "anabranch.site.agent_process", str(self._path)],
                stdin=subprocess.PIPE,
                stdout=errors,
                stderr=subprocess.STDOUT,
            )
        self._agent.started(process)
        self.journal.write("started", child="agent", pid=process.pid)

    def _stop(self) -> None:
        """First the agent, then the log it writes to."""
        signal.set_wakeup_fd(-1)
        for child in (self._agent, self._log):
            process = None if child is None else child.process
            if process is None:
                continue
            process.terminate()
            try:
                process.wait(_STOP_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self.journal.write("stopped", pid=process.pid, status=process.returncode)
        for name in ("agent", "nats"):
            with contextlib.suppress(OSError):
                (self.config.directory / f"{name}.pid").unlink()
        self.journal.close()


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m anabranch.site.process CONFIG.json", file=sys.stderr)
        return 2
    path = Path(arguments[0])
    try:
        config = Site.load(path)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    return Supervisor(config, path).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
