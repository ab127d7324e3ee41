"""A task ends, however often it loses a cancellation."""

import asyncio
import contextlib

from embedded import run

from anabranch.log.tasks import end


def test_a_task_that_swallows_cancellations_ends() -> None:
    async def deaf() -> None:
        for _ in range(3):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    async def work() -> None:
        tasks = [asyncio.create_task(deaf()) for _ in range(2)]
        await asyncio.sleep(0)
        await end(*tasks)
        assert all(task.done() for task in tasks)

    run(work(), 20)
