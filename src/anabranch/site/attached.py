"""What a site fetches and delivers itself: each source and sink of its configuration is a task that is begun
again when it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from anabranch.site.backoff import Backoff
from anabranch.site.config import ConfigError, Deployment, SiteConfig
from anabranch.site.intake import Intake
from anabranch.site.journal import Journal
from anabranch.site.sinks import console, parquet
from anabranch.site.sinks.settings import Parquet, SinkSettings
from anabranch.site.sources.files import Directory
from anabranch.site.sources.replayed import replay
from anabranch.site.sources.settings import Files, SourceSettings
from anabranch.site.subscription import Receiver

Work = Callable[[], Awaitable[None]]


class Attached:
    """Of one site. ``deployment`` gives that of the plan of now."""

    def __init__(self, config: SiteConfig, deployment: Callable[[], Deployment], journal: Journal) -> None:
        self._config = config
        self._deployment = deployment
        self._journal = journal
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        for number, fetched in enumerate(self._config.sources):
            name = f"source {fetched.source}"
            self._tasks.append(asyncio.create_task(self._keep(name, self._fetch(fetched, number))))
        for delivered in self._config.sinks:
            name = f"sink {delivered.application}"
            self._tasks.append(asyncio.create_task(self._keep(name, self._deliver(delivered))))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(self, name: str, work: Work) -> None:
        backoff = Backoff(0.5, 30.0)
        while True:
            try:
                await work()
            except Exception as error:
                self._journal.count("events", event="Failed")
                self._journal.write("Failed", part=name, reason=f"{type(error).__name__}: {error}")
                await asyncio.sleep(backoff.pause())
                continue
            self._journal.write("ended", part=name)
            return

    def _fetch(self, settings: SourceSettings, number: int) -> Work:
        config = self._config

        async def fetch() -> None:
            deployment = self._deployment()
            if config.site not in deployment.plan.entries.get(settings.source, ()):
                raise ConfigError(
                    f"source {settings.source!r} does not enter at {config.site!r}; "
                    "make that an entry point in the plan"
                )
            memory = config.directory / "sources" / f"{settings.source}.json"
            if not isinstance(settings, Files):
                await replay(settings, deployment, memory, self._journal)
                return
            source = next(each for each in config.graph.sources if each.name == settings.source)
            intake = Intake(deployment, f"files@{config.site}/{number}", self._journal)
            try:
                await Directory(settings, source, config.site, intake, memory, self._journal).run()
            finally:
                await intake.close()

        return fetch

    def _deliver(self, settings: SinkSettings) -> Work:
        def receive(after: int | None) -> Receiver:
            return Receiver(self._deployment(), settings.application, self._journal, True, after)

        async def deliver() -> None:
            if isinstance(settings, Parquet):
                await parquet.write(receive, Path(settings.directory), settings.every, settings.rows)
            else:
                await console.show(Receiver(self._deployment(), settings.application, self._journal))

        return deliver
