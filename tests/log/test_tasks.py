"""Tasks that are told to end do."""

import asyncio
import contextlib

import pytest

from anabranch.log import tasks as tasks_module
from anabranch.log.tasks import end


def test_a_task_that_swallows_a_cancellation_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks_module, "AGAIN", 0.05)

    async def stubborn() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(60)

    async def work() -> None:
        tasks = [asyncio.create_task(stubborn()) for _ in range(3)]
        await asyncio.sleep(0)
        await end(*tasks, None)
        assert all(task.cancelled() for task in tasks)

    asyncio.run(work())
