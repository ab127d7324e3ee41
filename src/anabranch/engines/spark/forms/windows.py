"""Rows in the time windows they belong to: [e - window, e) for every multiple e of the slide.

Not Spark's own ``window``: that knows no slide longer than the window, and its windows are pairs of event
times. Here a window is its end, which is what closes it.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from anabranch.engines.spark.forms.event_time import event, micros
from anabranch.engines.spark.forms.ids import long
from anabranch.streams.batch import TS
from anabranch.streams.punctuation import BEGINNING

END_OF_WINDOW = "_end"


def in_windows(rows: Any, window: int, every: int, silent_until: int) -> Any:
    """``rows`` with a column ``_event``, the end of a window as event time, once for each of their windows;
    windows that end at or before ``silent_until`` are left out."""
    ts = F.unix_micros(TS)
    # the first multiple behind ts, and the last one that is not behind ts + window
    first = ts - F.pmod(ts, long(every)) + long(every)
    last = ts + long(window) - F.pmod(ts + long(window), long(every))
    if window == every:
        ended = rows.withColumn(END_OF_WINDOW, first)
    elif window < every:
        ended = rows.withColumn(END_OF_WINDOW, first).filter(first <= last)
    else:
        ended = rows.withColumn(END_OF_WINDOW, F.explode(F.sequence(first, last, long(every))))
    if silent_until != BEGINNING:
        ended = ended.filter(F.col(END_OF_WINDOW) > long(silent_until))
    return ended.select("*", event(F.col(END_OF_WINDOW))).drop(END_OF_WINDOW)


end = micros
"""The end of the window, in microseconds."""


def bounds(window: int) -> list[Any]:
    """``_ts`` and behind it, once the ids are in between, ``window_start`` and ``window_end``."""
    return [
        F.timestamp_micros(end()).alias(TS),
        F.timestamp_micros(end() - long(window)).alias("window_start"),
        F.timestamp_micros(end()).alias("window_end"),
    ]
