"""Ending tasks, whatever they wait for."""

from __future__ import annotations

import asyncio
from typing import Any

_AGAIN = 0.2


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancels tasks until they are done. Once is not always enough: before Python 3.12 ``asyncio.wait_for``,
    which clients of the log server use too, may lose a cancellation that comes with what it waits for."""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_AGAIN)
    await asyncio.gather(*tasks, return_exceptions=True)
