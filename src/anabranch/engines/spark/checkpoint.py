"""What a streaming query's checkpoint says of its batches, read from Spark's own files.

``offsets/N`` is written before batch N is computed: a version, a line of JSON with the watermark that the
batch goes by, and one line for each source with the offset up to which it reads. ``commits/N`` is written
after the sink has committed it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from anabranch.engines.spark.source import Offset


class Unusable(ValueError):
    """A checkpoint that cannot be understood."""


class Batch(msgspec.Struct, frozen=True):
    """``watermark``: of event time, in milliseconds, by which the batch goes. ``inputs``: up to where it
    reads; what has not brought anything yet is not there."""

    watermark: int
    inputs: dict[str, Offset]


class _Metadata(msgspec.Struct):
    batchWatermarkMs: int = 0


def batch_offsets(checkpoint: Path, batch: int) -> Batch:
    path = checkpoint / "offsets" / str(batch)
    try:
        version, metadata, *lines = path.read_text("utf-8").splitlines()
        if version != "v1":
            raise Unusable(f"{path} is of version {version}, which this one does not know")
        watermark = msgspec.json.decode(metadata, type=_Metadata).batchWatermarkMs
        offsets = [msgspec.json.decode(line, type=Offset) for line in lines if line != "-"]
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise Unusable(f"{path} cannot be read ({error})") from error
    return Batch(watermark, {offset.stream: offset for offset in offsets})


def planned(checkpoint: Path) -> int:
    """The number of the last batch that was planned; -1: none."""
    return _last(checkpoint / "offsets")


def committed(checkpoint: Path) -> int:
    """The number of the last batch that was committed; -1: none."""
    return _last(checkpoint / "commits")


def _last(directory: Path) -> int:
    try:
        return max((int(path.name) for path in directory.iterdir() if path.name.isdigit()), default=-1)
    except OSError:
        return -1
