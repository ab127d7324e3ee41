"""The site's side of Spark's driver."""

import asyncio
from pathlib import Path

import psutil
import pytest

from anabranch.engines.spark.run import SCRATCH, Server, Settings
from anabranch.site.driver import Driver
from anabranch.site.journal import Journal


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_a_driver_that_was_killed_leaves_nothing_behind_when_the_next_is_up(tmp_path: Path) -> None:
    async def work() -> None:
        journal = Journal(tmp_path / "agent.jsonl")
        settings = Settings(Server("nats://127.0.0.1:1"), str(tmp_path / "a site"), "q at paris")
        driver = Driver(settings, journal, lambda event: None, lambda: None, pytest.fail)
        await ready(driver)
        left = {name: set((tmp_path / "a site" / name).iterdir()) for name in SCRATCH}
        assert all(left.values()), "the driver keeps nothing where it was told to"
        assert driver.pid is not None
        java = psutil.Process(driver.pid).children()
        psutil.Process(driver.pid).kill()
        await asyncio.to_thread(psutil.wait_procs, java, 30)
        assert not any(process.is_running() for process in java)
        await ready(driver)
        for name in SCRATCH:
            assert not left[name] & set((tmp_path / "a site" / name).iterdir())
        await driver.close()
        journal.close()

    asyncio.run(asyncio.wait_for(work(), 240))


async def ready(driver: Driver) -> None:
    while driver.ready:
        await asyncio.sleep(0.1)
    while not driver.ready:
        await asyncio.sleep(0.1)
