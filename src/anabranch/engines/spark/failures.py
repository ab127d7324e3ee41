"""From what Spark throws to the sentence that says what is wrong."""

from __future__ import annotations

import re

_RAISED = re.compile(
    r"^(?:Caused by: )?(?P<where>(?:[\w$]+\.)*)"
    r"(?P<what>\w*(?:Error|Exception|Hole|Malformed|Unusable|Inexact)): (?P<why>\S.*)$"
)
_JAVA = ("org.", "java.", "scala.", "py4j.", "pyspark.")
_LONGEST = 600


def reason(error: BaseException) -> str:
    """One line. If Python code in a worker raised, what it said last; else the first that Spark says.

    >>> text = "[STREAM_FAILED] Query failed:\\n  File x\\nanabranch.log.blocking.Hole: no record 7\\n at y"
    >>> reason(ValueError(text))
    'Hole: no record 7'
    >>> reason(ValueError("no such thing"))
    'ValueError: no such thing'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [match for line in lines[1:] if (match := _RAISED.match(line))]
    ours = [match for match in raised if not match["where"].startswith(_JAVA)]
    for match in reversed(ours or raised):
        return f"{match['what']}: {match['why']}"[:_LONGEST]
    return f"{type(error).__name__}: {lines[0] if lines else 'without a word'}"[:_LONGEST]
