"""How fast the duplicate filter rejoins branches, beside a plain Python set and Polars doing the same job.

Each branch delivers every tuple once, branch b ``LAG * b`` tuples after branch 0, in batches; timestamps are
slightly disordered. Punctuation follows the slowest branch: every duplicate is looked up, none is dropped
unseen. The filter counts ranks and forgets behind the punctuation; Polars, on all its threads, forgets too
and counts nothing; the set does neither.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from anabranch.streams.batch import Ints
from anabranch.streams.duplicates import DuplicateFilter

LAG = 20_000
PUNCTUATION_EVERY = 10_000
TUPLES_PER_TICK, DISORDER = 20, 500
ROUNDS = 5

Columns = tuple[Ints, Ints, Ints]
Event = tuple[int, Columns] | int
"""A batch on a branch, or a punctuation."""


def measure(tuples: int = 1_000_000) -> dict[str, float]:
    """Million deliveries a second (the best of five rounds), ratios, and bytes for each tuple remembered."""
    stream = _stream(tuples)
    found: dict[str, float] = {}
    for k in (2, 4):
        for size in (10_000, 1_000, 100):
            events = list(_events(stream, k, size))
            rate = max(_rate(events, tuples, _anabranch(k)) for _ in range(ROUNDS))
            found[f"k{k}_batch{size}_mtuples_s"] = rate
    found["bytes_per_live_tuple"] = _bytes_per_live_tuple(list(_events(stream, 2, 1_000)))
    few = tuples // 4
    events = list(_events(tuple(column[:few] for column in stream), 2, 10_000))  # type: ignore[arg-type]
    for name, rejoin in (("python_set", _python_set), ("polars", _polars)):
        found[f"{name}_mtuples_s"] = max(_rate(events, few, rejoin()) for _ in range(ROUNDS))
        found[f"times_{name}"] = found["k2_batch10000_mtuples_s"] / found[f"{name}_mtuples_s"]
    return {key: round(value, 3) for key, value in found.items()}


def _stream(n: int) -> Columns:
    rng = np.random.default_rng(7)
    ts = np.arange(n) // TUPLES_PER_TICK + rng.integers(0, DISORDER, n)
    return ts, rng.integers(-(2**63), 2**63 - 1, n), rng.integers(-(2**63), 2**63 - 1, n)


def _events(stream: Columns, k: int, size: int) -> Iterator[Event]:
    n, lag = len(stream[0]), LAG // size * size
    for at in range(0, n + (k - 1) * lag, size):
        for branch in range(k):
            start = at - branch * lag
            if 0 <= start < n:
                yield branch, tuple(column[start : start + size] for column in stream)  # type: ignore[misc]
        slowest = at - (k - 1) * lag
        if slowest > 0 and slowest % PUNCTUATION_EVERY == 0:
            yield slowest // TUPLES_PER_TICK - 1


def _rate(events: list[Event], tuples: int, handle: Callable[[Event], int]) -> float:
    deliveries = sum(len(event[1][0]) for event in events if not isinstance(event, int))
    start = time.perf_counter()
    passed = sum(map(handle, events))
    seconds = time.perf_counter() - start
    if passed != tuples:
        raise AssertionError(f"{passed} tuples passed where {tuples} should have: the measurement is void")
    return deliveries / seconds / 1e6


def _anabranch(k: int) -> Callable[[Event], int]:
    rejoin = DuplicateFilter(k)

    def handle(event: Event) -> int:
        if isinstance(event, int):
            rejoin.punctuate(event)
            return 0
        branch, (ts, hi, lo) = event
        return rejoin.accept(branch, ts, hi, lo)

    return handle


def _bytes_per_live_tuple(events: list[Event]) -> float:
    """The mean over the run, sampled at each punctuation."""
    rejoin, samples = DuplicateFilter(2), []
    for event in events:
        if isinstance(event, int):
            rejoin.punctuate(event)
            samples.append(rejoin.nbytes / rejoin.live)
        else:
            rejoin.accept(event[0], *event[1])
    return float(np.mean(samples))


def _python_set() -> Callable[[Event], int]:
    seen: set[tuple[int, int]] = set()

    def handle(event: Event) -> int:
        if isinstance(event, int):
            return 0
        _, (_, hi, lo) = event
        fresh = [id_ for id_ in zip(hi.tolist(), lo.tolist(), strict=True) if id_ not in seen]
        seen.update(fresh)
        return len(fresh)

    return handle


def _polars() -> Callable[[Event], int]:
    try:
        import polars as pl  # noqa: PLC0415 (an extra: only this measurement needs it)
    except ImportError as missing:
        raise RuntimeError(
            "the filter is compared with Polars, which is not installed: pip install 'anabranch[bench]'"
        ) from missing
    key = ["ts", "hi", "lo"]
    seen: Any = pl.DataFrame(schema=dict.fromkeys(key, pl.Int64))

    def handle(event: Event) -> int:
        nonlocal seen
        if isinstance(event, int):
            seen = seen.filter(pl.col("ts") > event)
            return 0
        batch = pl.DataFrame(dict(zip(key, event[1], strict=True)))
        fresh = batch.join(seen, on=key, how="anti").unique()
        seen = pl.concat([seen, fresh])
        return int(fresh.height)

    return handle
