"""Results as JSON lines, for people."""

from __future__ import annotations

import sys
from typing import TextIO

from anabranch.site.as_json import objects
from anabranch.site.subscription import Receiver


async def show(receiver: Receiver, to: TextIO | None = None) -> None:
    """Until the stream ends."""
    out = to or sys.stdout
    async with receiver:
        async for rows in receiver:
            for line in objects(rows):
                out.write(line.decode() + "\n")
            out.flush()
