"""From what Spark throws to the sentence that says what is wrong."""

from __future__ import annotations

import re

_RAISED = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Za-z_]\w*): (.+)$")
_FRAMES = ("at ", "File ", "... ")
_LONGEST = 600


def reason(error: BaseException) -> str:
    """One line. If Python code of a worker raised, what it said; else the first that Spark says.

    >>> reason(ValueError("[STREAM_FAILED] Query failed: \\n  File x\\nanabranch.log.blocking.Hole: no record 7\\n"))
    'Hole: no record 7'
    >>> reason(ValueError("no such thing"))
    'ValueError: no such thing'
    """
    text = str(error)
    said = [line.strip() for line in text.splitlines()]
    raised = [
        match
        for line in said
        if not line.startswith(_FRAMES) and "." not in line.split(":")[0].removeprefix("anabranch.")[:0]
        for match in [_RAISED.match(line)]
        if match and not match[0].startswith(("org.", "java.", "pyspark.", "SQLSTATE", "Caused"))
    ]
    if "Traceback" in text or "\n" in text:
        for match in reversed(raised):
            return f"{match[1]}: {match[2]}"[:_LONGEST]
    first = next((line for line in said if line), "")
    return f"{type(error).__name__}: {first}"[:_LONGEST]
