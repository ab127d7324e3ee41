"""Numbers, dates and timestamps converted and rounded as the JVM does it."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.operators.vectors import DTYPE, Unary, elementwise
from anabranch.types import FRACTIONAL, INTEGRAL

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_EXACT = Context(prec=2_000, rounding=ROUND_HALF_UP)


def cast(source: str, target: str) -> Unary:
    """CAST between two types of fixed width."""
    dtype = DTYPE[target]
    if source == "timestamp":
        if target == "double":
            return elementwise(lambda values: values / float(_SECOND))
        return elementwise(lambda values: (values // (_DAY if target == "date" else _SECOND)).astype(dtype))
    if source == "date":
        return elementwise(lambda values: values.astype(np.int64) * _DAY)
    if target == "timestamp":
        return elementwise(_seconds_to_timestamp)
    if source in FRACTIONAL and target in INTEGRAL:
        return elementwise(lambda values: saturate(values, target))
    return elementwise(lambda values: values.astype(dtype))


def saturate(values: npt.NDArray[Any], target: str) -> npt.NDArray[Any]:
    """Java's ``(long) x`` and ``(int) x``: towards zero, limited, NaN to 0. Narrower types wrap."""
    dtype: np.dtype[Any] = DTYPE["bigint" if target == "bigint" else "int"]
    limits = np.iinfo(dtype)
    wide = values.astype(np.float64)
    whole = np.where(np.isfinite(wide) & (np.abs(wide) < -float(limits.min)), wide, 0.0).astype(dtype)
    whole = np.where(wide >= -float(limits.min), limits.max, whole)
    return np.where(wide <= limits.min, limits.min, whole).astype(DTYPE[target])


def _seconds_to_timestamp(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    limit = (2**63 - 1) // _SECOND
    wide = values.astype(np.int64)
    micros = np.clip(wide, -limit, limit) * _SECOND
    micros = np.where(wide > limit, np.iinfo(np.int64).max, micros)
    return np.where(wide < -limit, np.iinfo(np.int64).min, micros)


def power(base: npt.NDArray[np.float64], exponent: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Java's pow: unlike C's, NaN for 1 to the power NaN, and for 1 or -1 to an infinite power.

    Not numpy's: its last bit depends on how many elements it is given, and replicas see other batches.
    """
    odd = (np.isnan(exponent) & (base == 1.0)) | (np.isinf(exponent) & (np.abs(base) == 1.0))
    bases, exponents = np.broadcast_arrays(base, exponent)
    powers = pc.power(pa.array(bases.copy()), pa.array(exponents.copy()))
    return np.where(odd, np.nan, powers.to_numpy())


def rounding(type_name: str, digits: int) -> Unary:
    """ROUND: half up, of the decimal text that a float prints as."""
    if type_name in FRACTIONAL:
        # Java reads a float as the double of equal value before it takes its text.
        return elementwise(
            lambda values: _round_double(values.astype(np.float64), digits).astype(values.dtype)
        )
    if digits >= 0:
        return lambda vector: vector
    return elementwise(lambda values: _round_whole(values, digits))


def _round_double(values: npt.NDArray[np.float64], digits: int) -> npt.NDArray[np.float64]:
    result = np.empty_like(values)
    slow = np.ones(len(values), np.bool_)
    if 0 <= digits <= 15 and len(values) > 8:
        # Far enough from a tie and small enough, the nearest integer is beyond doubt and the quotient exact.
        scaled = values * 10.0**digits
        nearest = np.rint(scaled)
        slow = ~((np.abs(scaled) < 2.0**31) & (np.abs(np.abs(scaled - nearest) - 0.5) > 1e-6))
        result = nearest / 10.0**digits + 0.0
    for i in np.flatnonzero(slow):
        result[i] = _half_up(float(values[i]), digits)
    return result


def _half_up(value: float, digits: int) -> float:
    if not np.isfinite(value) or digits > 400:
        return value + 0.0
    if digits < -400:
        return 0.0
    return float(_EXACT.quantize(Decimal(repr(value)), Decimal((0, (1,), -digits)))) + 0.0


def _round_whole(values: npt.NDArray[Any], digits: int) -> npt.NDArray[Any]:
    if digits < -19:
        return np.zeros_like(values)
    step = 10**-digits
    bits = values.dtype.itemsize * 8
    rounded = []
    for value in values.tolist():
        near = (abs(value) + step // 2) // step * step * (1 if value >= 0 else -1)
        rounded.append((near + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1)))  # overflow wraps
    return np.array(rounded, values.dtype)
