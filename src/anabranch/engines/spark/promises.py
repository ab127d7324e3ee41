"""What an exported stream promises once a batch is through: a punctuation of its own.

A batch N reads its inputs up to the offsets written in ``offsets/N``, and evicts and closes by the
watermark W written there, which is what batch N - 1 has heard, cut to whole milliseconds.

- *Rows of inputs*, filtered, mapped, united or joined, leave in the batch that reads the later of them.
  Whatever batch N + 1 reads lies behind the punctuation at the end of batch N, so that may be promised: the
  least over the inputs, to the microsecond.
- *Windows* leave in the first batch with W >= their end, so later batches bring only windows that end
  behind W. So do joins and all else behind windows: of two tuples that meet later at least one is of a
  later batch. If every window ends on a whole millisecond, then those up to W are also all up to the
  punctuation that W was cut from.
"""

from __future__ import annotations

import msgspec

from anabranch.engines.spark.checkpoint import Batch
from anabranch.engines.spark.times import from_watermark, to_mark
from anabranch.streams.punctuation import BEGINNING, END


class Promise(msgspec.Struct, frozen=True):
    """By which inputs of the query an export goes; whether windows stand between, and all of their ends on
    whole milliseconds."""

    inputs: tuple[str, ...]
    windowed: bool
    whole: bool


def promised(promise: Promise, batch: Batch, before: Batch | None) -> int:
    """After ``batch``; ``before`` is the batch before it, None for the first."""
    if not promise.windowed:
        return _least(promise.inputs, batch)
    floor = from_watermark(batch.watermark * 1_000)
    if floor == END or not promise.whole or before is None:
        return floor
    # The watermark follows all inputs of the query, not only those of this export.
    heard = _least(tuple(before.inputs), before)
    mark = to_mark(heard)
    return heard if mark is not None and mark // 1_000 == batch.watermark else floor


def _least(inputs: tuple[str, ...], batch: Batch) -> int:
    return min(
        (batch.inputs[stream].punctuation if stream in batch.inputs else BEGINNING for stream in inputs),
        default=BEGINNING,
    )
