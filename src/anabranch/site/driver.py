"""The engine process of a site: Spark's driver, started, spoken to and started again when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from anabranch.engines.spark.run import (
    SCRATCH,
    Command,
    Event,
    Leave,
    Ready,
    Server,
    Settings,
    decode_event,
    encode,
)
from anabranch.site.backoff import Backoff
from anabranch.site.config import SiteConfig, Spark
from anabranch.site.journal import Journal, words_to

MOST_DEATHS = 6
"""Deaths within two minutes after which starting it again does not help."""
_LEAVING = 10.0
_LOOK = 0.1
_LEFT = 60.0
"""Seconds that the processes of an earlier driver may take to end."""


class DriverFailed(RuntimeError):
    """The driver does not stay up: the sentence says where to look."""


def settings_of(config: SiteConfig, spark: Spark) -> Settings:
    """What the driver of this site is started with."""
    access = config.access(config.site)
    url = access.url if access.tls is None else access.tls.within(access.url, access.server or "")
    return Settings(
        server=Server(url),
        directory=str(config.directory / "spark"),
        name=f"{config.query} at {config.site}",
        master=spark.master,
        memory=spark.memory,
        partitions=spark.partitions,
        salts=spark.salts,
        batch_bytes=spark.batch_bytes,
        trigger=spark.trigger,
        conf=spark.conf,
    )


class Driver:
    """``heard`` is told every event; ``gone`` when the process has ended, with all that it ran; ``failed``
    when starting it again does not help. It ends when this process does: its standard input is closed."""

    def __init__(
        self,
        settings: Settings,
        journal: Journal,
        heard: Callable[[Event], None],
        gone: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.ready = False
        self.pid: int | None = None
        self._settings = settings
        self._directory = settings.directory
        self._journal = journal
        self._heard = heard
        self._gone = gone
        self._failed = failed
        self._process: asyncio.subprocess.Process | None = None
        self._task = asyncio.create_task(self._run())

    def say(self, command: Command) -> None:
        """Nothing is said to a driver that is not there: when it is :class:`Ready`, say it again."""
        process = self._process
        if self.ready and process is not None and process.stdin is not None:
            process.stdin.write(encode(command))

    async def close(self) -> None:
        """Asks it to leave, and kills it if it does not."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        process = self._process
        if process is None or process.returncode is not None:
            return
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.write(encode(Leave()))
                process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _LEAVING)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _run(self) -> None:
        deaths: list[float] = []
        backoff = Backoff(0.5, 10.0)
        try:
            while True:
                await self._live()
                self._gone()
                deaths = [*deaths, time.monotonic()][-MOST_DEATHS:]
                if len(deaths) == MOST_DEATHS and deaths[-1] - deaths[0] < 120:
                    raise DriverFailed(
                        f"the Spark driver has ended {MOST_DEATHS} times in two minutes; look at "
                        f"{self._directory}/driver.err"
                    )
                await asyncio.sleep(backoff.pause())
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._failed(error)

    async def _live(self) -> None:
        """One process, from start to end."""
        process = await self._start()
        self._process, self.pid = process, process.pid
        self._journal.write("driver started", pid=process.pid)
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                try:
                    event = decode_event(line)
                except msgspec.MsgspecError as error:
                    said = line[:200].decode("utf-8", "replace")
                    self._journal.write("driver not understood", why=str(error), line=said)
                    continue
                self.ready = self.ready or isinstance(event, Ready)
                self._heard(event)
        finally:
            self.ready, self.pid = False, None
        status = await process.wait()
        self._journal.count("drivers_ended")
        self._journal.write("driver ended", status=status)

    async def _start(self) -> asyncio.subprocess.Process:
        directory = Path(self._directory)
        directory.mkdir(parents=True, exist_ok=True)
        settings = directory / "driver.json"
        settings.write_bytes(msgspec.json.format(msgspec.json.encode(self._settings)))
        settings.chmod(0o600)
        with words_to(directory / "driver.err") as errors:
            await self._alone(errors)
            # A driver that was killed has left behind what it would have removed.
            for name in SCRATCH:
                await asyncio.to_thread(shutil.rmtree, directory / name, ignore_errors=True)
                (directory / name).mkdir(exist_ok=True)
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "anabranch.engines.spark.driver",
                str(settings),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=1 << 20,
            )

    async def _alone(self, errors: BinaryIO) -> None:
        """Waits until nothing is left of a driver before. Each keeps a lock on the file that it, its Java and
        its workers write their words to; when all of them are gone, so is the lock. Two at once would write
        to the same checkpoints and the same sinks."""
        waited = 0.0
        while True:
            with contextlib.suppress(OSError):
                fcntl.flock(errors, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            if waited == 0.0:
                self._journal.write("driver waits", why="an earlier one has not ended yet")
            waited += _LOOK
            if waited > _LEFT:
                raise DriverFailed(
                    f"a Spark driver of this site's has not ended within {_LEFT:.0f} s; look which process "
                    f"has {errors.name} open, and end it"
                )
            await asyncio.sleep(_LOOK)
