"""Lineage ids as Spark's own expressions: see :mod:`anabranch.streams.hashing`, whose values these are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import functions as F

from anabranch.streams.batch import HI, LO


def ids(*values: Any, prefix: str = "") -> tuple[Any, Any]:
    """Two hashes of the same values, told apart by what stands before them."""
    hi, lo = F.xxhash64(long(1), *values), F.xxhash64(long(2), *values)
    return hi.alias(f"{prefix}{HI}"), lo.alias(f"{prefix}{LO}")


def long(number: int) -> Any:
    return F.lit(number).cast("bigint")


def window_ids(
    operator: str, window: Any, group: Sequence[str], *numbers: Any, prefix: str = ""
) -> tuple[Any, Any]:
    """``window`` and ``numbers`` are BIGINT, ``group`` names columns."""
    values = [part for name in group for part in (F.isnull(name), F.col(name))]
    return ids(F.xxhash64(F.lit(operator)), window, *numbers, *values, prefix=prefix)
