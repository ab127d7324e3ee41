"""Event time as Spark has it, and punctuation in it.

Spark's watermarks are whole milliseconds since 1970 and begin at 0: a row at or before 1970 would be late. So
event time is a column of its own, the tuple's timestamp moved by ``SHIFT``, which brings the year 1 behind
1970. It is made where a stateful operator needs it and is never seen outside.

>>> from_watermark(to_mark(7_000)) == 7_000, from_watermark(to_mark(7_999)) == 7_000
(True, True)
>>> from_watermark(to_mark(END)) == END, to_mark(BEGINNING), from_watermark(0) == BEGINNING
(True, None, True)
"""

from __future__ import annotations

from anabranch.streams.punctuation import BEGINNING, END

SHIFT = 144_000_000_000_000_000
"""4563 years, in whole milliseconds."""

FAR = 1_152_000_000_000_000_000
"""The event time of END: behind every timestamp, shifted, and all windows on top."""

MARK = "_mark"
"""The column of the source in which a row that is nothing but a punctuation has its event time."""


def to_mark(punctuation: int) -> int | None:
    """The event time of a punctuation; None if it promises nothing."""
    if punctuation == END:
        return FAR
    mark = min(punctuation + SHIFT, FAR - 1_000)
    return mark if mark > 0 else None


def from_watermark(mark: int) -> int:
    """What a watermark promises, given as event time; whole milliseconds of it count."""
    whole = mark // 1_000 * 1_000
    if whole >= FAR:
        return END
    return whole - SHIFT if whole > 0 else BEGINNING
