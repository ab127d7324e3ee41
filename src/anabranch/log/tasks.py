"""Ending tasks for certain."""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN = 3.0
"""Seconds."""


async def end(*tasks: asyncio.Task[Any] | None) -> None:
    """Returns once they have ended. ``asyncio.wait_for``, which the NATS client uses throughout, may swallow
    a cancellation that comes together with the result it waits for (until Python 3.12): so it is said again,
    though not so soon that it would interrupt what they do at their end.
    """
    left = {task for task in tasks if task is not None and not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN)
    await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)
