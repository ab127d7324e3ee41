"""The audit of a run: what each application received against the ideal run, and how long it had to wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.engines.ideal import ideal
from anabranch.graph import Graph, Output
from anabranch.plan import Plan
from anabranch.streams.batch import Ints


class Latency(msgspec.Struct, frozen=True):
    """Milliseconds from a tuple's timestamp to its delivery; 0 for a window that closed with its stream."""

    p50: float
    p99: float


class Audit(msgspec.Struct, frozen=True):
    """``missing``: tuples of the ideal run that did not arrive. ``extra``: arrivals that are not in it, or
    not as often, or not with these values. ``in_order``: sorted, where the output asks for it.
    ``silence_s``: the longest time between two deliveries."""

    output: str
    expected: int
    delivered: int
    missing: int
    extra: int
    in_order: bool
    complete: bool
    silence_s: float
    latency_ms: Latency

    @property
    def exact(self) -> bool:
        return self.complete and self.in_order and not self.missing and not self.extra


class Received(Protocol):
    """What applications received, simulated or live."""

    @property
    def deliveries(self) -> Mapping[str, pa.Table]: ...
    @property
    def accepted(self) -> Mapping[str, pa.Table]: ...
    @property
    def stalled(self) -> Mapping[str, int]: ...


def audit(
    graph: Graph, inputs: Mapping[str, pa.Table], plan: Plan, run: Received, since: int | None = None
) -> dict[str, Audit]:
    """One audit for each application of the plan. Silence and latency are of what came with timestamps from
    ``since`` on."""
    # where entry points give the timestamps, the ideal run is that of the tuples as they were stamped
    expected = ideal(graph, {**inputs, **run.accepted})
    outputs = {output.name: output for output in graph.outputs}
    return {
        subscription.name: _audit(
            outputs[subscription.output],
            expected[subscription.output],
            run.deliveries[subscription.name],
            subscription.name not in run.stalled,
            since,
        )
        for subscription in plan.subscriptions
    }


def _audit(
    output: Output, expected: pa.Table, received: pa.Table, complete: bool, since: int | None
) -> Audit:
    wanted, got = list(rows_of(expected)), list(rows_of(received.drop_columns("delivered")))
    missing = (Counter(wanted) - Counter(got)).total()
    extra = (Counter(got) - Counter(wanted)).total()
    ts, delivered = _times(received, "ts"), _times(received, "delivered")
    in_order = output.order is None or bool((np.diff(ts) >= 0).all())
    if since is not None:
        ts, delivered = ts[ts >= since], delivered[ts >= since]
    return Audit(
        output.name,
        len(wanted),
        len(got),
        missing,
        extra,
        in_order,
        complete,
        longest_silence(delivered),
        latency(delivered - ts),
    )


def longest_silence(delivered: Ints) -> float:
    """Seconds between the two consecutive deliveries that are farthest apart."""
    return round(float(np.diff(delivered).max(initial=0)) / 1e6, 3)


def latency(waited: Ints) -> Latency:
    if not len(waited):
        return Latency(0.0, 0.0)
    p50, p99 = np.percentile(np.maximum(waited, 0), (50, 99), method="nearest") / 1e3
    return Latency(round(float(p50), 1), round(float(p99), 1))


def _times(table: pa.Table, column: str) -> Ints:
    return np.asarray(table.column(column).cast(pa.int64()).to_numpy(), np.int64)


def rows_of(table: pa.Table | pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Rows that are equal exactly if all their values are, to the bit; NaN too."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.columns
    ]
    return zip(*(map(_exactly, column.to_pylist()) for column in columns), strict=True)


def _exactly(value: Any) -> Any:
    return value.hex() if isinstance(value, float) else value
