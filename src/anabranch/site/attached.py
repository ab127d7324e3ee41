"""What a site fetches and delivers itself: each source and sink of its configuration is a task that is begun
again when it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from anabranch.graph import Source
from anabranch.site.backoff import Backoff
from anabranch.site.config import ConfigError, Deployment, SiteConfig
from anabranch.site.intake import Intake
from anabranch.site.journal import Journal
from anabranch.site.sinks import console, parquet
from anabranch.site.sinks.settings import Parquet, SinkSettings, ToSpark
from anabranch.site.sinks.spark import SparkSink
from anabranch.site.sources.files import Directory
from anabranch.site.sources.replayed import replay
from anabranch.site.sources.settings import Files, FromSpark, Replayed, SourceSettings, readers
from anabranch.site.sources.spark import SparkSource
from anabranch.site.spark_work import SparkWork
from anabranch.site.subscription import Receiver

_WELL = 60.0
"""Seconds after which a failure is not one more of the same."""

Work = Callable[[], Awaitable[None]]
_KINDS = {Files: "files", FromSpark: "spark"}


class Attached:
    """Of one site. ``deployment`` gives that of the plan of now; ``work`` is what Spark does for them."""

    def __init__(
        self,
        config: SiteConfig,
        deployment: Callable[[], Deployment],
        work: SparkWork,
        journal: Journal,
    ) -> None:
        self._config = config
        self._deployment = deployment
        self._work = work
        self._journal = journal
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        for number, fetched in enumerate(self._config.sources):
            name = f"source {fetched.source}"
            self._tasks[name] = asyncio.create_task(self._keep(name, self._fetch(fetched, number)))
        for delivered in self._config.sinks:
            name = f"sink {delivered.application}"
            self._tasks[name] = asyncio.create_task(self._keep(name, self._deliver(delivered)))

    @property
    def under_way(self) -> tuple[str, ...]:
        return tuple(name for name, task in self._tasks.items() if not task.done())

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()

    async def _keep(self, name: str, work: Work) -> None:
        backoff = Backoff(0.5, 30.0)
        loop = asyncio.get_running_loop()
        while True:
            begun = loop.time()
            try:
                await work()
            except Exception as error:
                if loop.time() - begun > _WELL:
                    backoff.reset()
                self._journal.count("events", event="Failed")
                self._journal.write("Failed", part=name, reason=f"{type(error).__name__}: {error}")
                await asyncio.sleep(backoff.pause())
                continue
            self._journal.write("ended", part=name)
            return

    def _fetch(self, settings: SourceSettings, number: int) -> Work:
        config = self._config
        source = next(each for each in config.graph.sources if each.name == settings.source)
        memory = config.directory / "sources" / f"{settings.source}.json"
        spark = self._from_spark(settings, source, memory) if isinstance(settings, FromSpark) else None

        async def fetch() -> None:
            deployment = self._deployment()
            sites = readers(settings, deployment.plan.entries.get(settings.source, ()))
            if config.site not in sites:
                raise ConfigError(
                    f"source {settings.source!r} is not to be fetched at {config.site!r} but at "
                    f"{', '.join(sites)}; make {config.site!r} an entry point in the plan, the first one if "
                    "only one may read it"
                )
            if isinstance(settings, Replayed):
                await replay(settings, deployment, memory, self._journal)
                return
            intake = Intake(deployment, f"{_KINDS[type(settings)]}@{config.site}/{number}", self._journal)
            try:
                if isinstance(settings, Files):
                    await Directory(settings, source, config.site, intake, memory, self._journal).run()
                else:
                    assert spark is not None
                    await spark.run(intake)
            finally:
                await intake.close()

        return fetch

    def _from_spark(self, settings: FromSpark, source: Source, memory: Path) -> SparkSource:
        config = self._config
        entries = config.plan.entries.get(settings.source, ())
        checkpoint = f"{config.checkpoints}/source {settings.source}"
        return SparkSource(
            settings,
            source,
            config.query,
            config.site,
            entries,
            memory,
            checkpoint,
            self._work,
            self._journal,
        )

    def _deliver(self, settings: SinkSettings) -> Work:
        def receive(after: int | None) -> Receiver:
            return Receiver(self._deployment(), settings.application, self._journal, True, after)

        async def deliver() -> None:
            if isinstance(settings, Parquet):
                await parquet.write(receive, Path(settings.directory), settings.every, settings.rows)
            elif isinstance(settings, ToSpark):
                directory = self._config.directory / "sinks"
                await SparkSink(settings, directory, self._work).run(receive)
            else:
                await console.show(Receiver(self._deployment(), settings.application, self._journal))

        return deliver
