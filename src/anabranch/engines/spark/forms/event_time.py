"""The column of event time, made where a stateful operator needs it: see :mod:`..times`."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from anabranch.engines.spark.times import SHIFT

EVENT = "_event"
METADATA = {"spark.watermarkDelayMs": 0}
"""Makes a timestamp column one of event time, without a watermark of its own."""


def event(micros: Any, name: str = EVENT) -> Any:
    """The event time of a BIGINT column of microseconds."""
    return F.timestamp_micros(micros + F.lit(SHIFT)).alias(name, metadata=METADATA)


def micros() -> Any:
    """And back."""
    return F.unix_micros(EVENT) - F.lit(SHIFT)
