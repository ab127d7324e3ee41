"""Lengths of time as users write them, in int64 microseconds inside.

>>> microseconds("500 ms"), microseconds("1 minute 30 seconds"), microseconds(timedelta(seconds=2))
(500000, 90000000, 2000000)
"""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

from anabranch.types import QueryError

Duration = str | timedelta

_WORDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "sec": 1_000_000,
    "second": 1_000_000,
    "min": 60_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_LETTERS = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_UNITS = _LETTERS | _WORDS | {word + "s": length for word, length in _WORDS.items()}
_PART = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([a-zA-Z]+)\s*")
LONGEST = 1_000 * 366 * 86_400_000_000
"""A thousand years: sums of a few durations and timestamps stay far inside int64."""


def microseconds(duration: Duration, what: str = "duration") -> int:
    """``duration`` in microseconds; a QueryError beginning with ``what`` unless it is longer than zero."""
    if isinstance(duration, timedelta):
        length = duration // timedelta(microseconds=1)
    elif isinstance(duration, str):
        length = _parse(duration, what)
    else:
        raise QueryError(
            f"{what}: a duration is a string such as '10 seconds' or a timedelta, not {duration!r}; "
            "give the number its unit."
        )
    return check_length(length, what)


def check_length(length: int, what: str) -> int:
    """``length`` itself, if a window can be that long."""
    if length <= 0:
        raise QueryError(f"{what}: a duration must be longer than zero.")
    if length > LONGEST:
        raise QueryError(f"{what}: a duration of more than a thousand years is not supported.")
    return length


def _parse(text: str, what: str) -> int:
    total, at = Fraction(0), 0
    while part := _PART.match(text, at):
        scale = _UNITS.get(part[2].lower())
        if scale is None:
            raise QueryError(
                f"{what}: there is no unit '{part[2]}' in '{text}'; "
                "the units are us, ms, seconds, minutes, hours, days and weeks."
            )
        total += Fraction(part[1]) * scale
        at = part.end()
    if at == 0 or at != len(text):
        raise QueryError(
            f"{what}: '{text}' is not a duration; write a number and a unit, such as '10 seconds'."
        )
    if total.denominator != 1:
        raise QueryError(f"{what}: '{text}' is not a whole number of microseconds; nothing finer is kept.")
    return int(total)
