"""A streaming source of Spark's as a source of the query: one more streaming query, whose rows go to the
site's agent, which identifies them and brings them to the entry point.

A batch goes as those of fragments do (:mod:`anabranch.log.handover`), on a subject of its own: the tasks send
pieces, and at the end the driver says which of them count. The agent answers when the entry point has all of
it safe, and only then does Spark call the batch committed. So nothing is lost, and what Spark hands over
again the agent recognises.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from anabranch.engines.spark.fetched import (
    NAME,
    FetchedSink,
    FetchError,
    Target,
)
from anabranch.engines.spark.formats import registered
from anabranch.engines.spark.orders import NUMBER, PARTITION, TS, Fetch
from anabranch.engines.spark.resume import forget
from anabranch.engines.spark.run import Settings


class Fetching(NamedTuple):
    """In the place of a fragment's :class:`anabranch.engines.spark.resume.Decision`."""

    name: str
    run: Fetch
    resumed: bool
    reason: str


class _Kept(msgspec.Struct, frozen=True):
    """What stands beside the checkpoint in ``fetch.json``: the run, and of what it is."""

    name: str
    order: Fetch


def decide(order: Fetch) -> Fetching:
    """Leaves the checkpoint directory ready for the query to start."""
    directory = Path(order.checkpoint)
    kept = _kept(directory)
    if not order.run:
        reason = "it begins"
    elif kept is None or kept.name != order.run:
        reason = f"the checkpoint of run {order.run} is not in {directory}"
    elif order.anew and _what(kept.order) != _what(order):
        reason = "it is described otherwise than before"
    else:
        return Fetching(kept.name, order, True, "from its checkpoint")
    if order.run and not order.anew:
        raise FetchError(
            f"source {order.stream!r}: {reason}. Its rows have no identity of their own, so nobody knows "
            "which of them have been read. To read it from its beginning, where everything counts again, "
            f"remove {order.stream}.json and {order.stream}.arrow from sources in the site's directory"
        )
    forget(directory)
    directory.mkdir(parents=True)
    name = secrets.token_hex(6)
    fresh = directory / "fetch.json.new"
    fresh.write_bytes(msgspec.json.encode(_Kept(name, order)))
    fresh.replace(directory / "fetch.json")
    return Fetching(name, order, False, reason)


def _what(order: Fetch) -> Fetch:
    """What a checkpoint rests on."""
    return msgspec.structs.replace(order, run="", anew=False, checkpoint="", every=0.0)


def _kept(directory: Path) -> _Kept | None:
    try:
        return msgspec.json.decode((directory / "fetch.json").read_bytes(), type=_Kept)
    except (OSError, msgspec.MsgspecError):
        return None


def start_fetch(spark: Any, fetching: Fetching, life: str, settings: Settings) -> Any:
    """The streaming query, under way; ``life`` of the driver."""
    order = fetching.run
    with contextlib.suppress(AnalysisException):  # the session knows it already
        spark.dataSource.register(FetchedSink)
    server = settings.server
    target = Target(
        server.url,
        server.user,
        server.password,
        order.query,
        order.fragment,
        fetching.name,
        life,
        order.stream,
        order.columns,
    )
    return (
        _rows(spark, order)
        .writeStream.format(NAME)
        .option("target", msgspec.json.encode(target).decode())
        .option("checkpointLocation", str(Path(order.checkpoint) / "spark"))
        .outputMode("append")
        .trigger(processingTime=f"{max(1, round(order.every * 1000))} milliseconds")
        .queryName(order.fragment)
        .start()
    )


def _rows(spark: Any, order: Fetch) -> Any:
    reader = spark.readStream.format(registered(spark, order.format)).options(**order.options)
    if order.schema is not None:
        reader = reader.schema(order.schema)
    rows = reader.load()
    if order.select:
        rows = rows.selectExpr(*order.select)
    types = dict(rows.dtypes)
    for name, wanted in _wanted(order):
        have = types.get(name)
        if have is None:
            raise FetchError(
                f"source {order.stream!r}: there is no column {name!r}; there are {_list(types)}"
            )
        if have not in wanted:
            raise FetchError(
                f"source {order.stream!r}: column {name!r} is {have} and should be {wanted[-1]}; write "
                f"'cast({name} as {wanted[-1]}) as {name}' in select, beside the other columns"
            )
    return rows.select(
        _or(order.partition, F.lit("")).cast("string").alias(PARTITION),
        _or(order.number, F.lit(0)).cast("bigint").alias(NUMBER),
        _or(order.timestamp, F.lit(0).cast("timestamp")).alias(TS),
        *(F.col(f"`{column.name}`").alias(f"c{n}") for n, column in enumerate(order.columns)),
    )


def _or(name: str | None, otherwise: Any) -> Any:
    return otherwise if name is None else F.col(f"`{name}`")


def _wanted(order: Fetch) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Which columns must be there, and of what types they may be, the usual one last."""
    if order.partition is not None:
        yield order.partition, ("tinyint", "smallint", "int", "bigint", "date", "string")
    if order.number is not None:
        yield order.number, ("tinyint", "smallint", "int", "bigint")
    if order.timestamp is not None:
        yield order.timestamp, ("timestamp",)
    for column in order.columns:
        yield column.name, (column.type,)


def _list(types: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in types.items())
