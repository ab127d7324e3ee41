"""How fast the event simulator and the flow model are, on the query of the paper's Figure 1 with 30 sites."""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from anabranch.lab.figure1 import MONTH, SECOND, Figure1, run
from anabranch.protocols.settings import Settings
from anabranch.sim.run import simulate
from anabranch.traces import Traces

HOUR = 360
"""Rounds of ten seconds."""

UNHURRIED = Settings(
    tick=10 * SECOND,
    punctuation_interval=10 * SECOND,
    heartbeat_interval=60 * SECOND,
    branch_timeout=30 * SECOND,
    branch_timeout_most=240 * SECOND,
)
"""Intervals that befit tuples every ten seconds."""


def measure(hour: int = HOUR, month: int = MONTH) -> dict[str, float]:
    """Seconds for ``hour`` rounds of events with k = 3 and ``month`` rounds of the flow model with k = 4;
    events, and tuples on branches, a second of the former; peak memory of the latter, in a process of its
    own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        flow = process.submit(_flow, month).result()
    return {key: round(value, 3) for key, value in (_events(hour) | flow).items()}


def _events(rounds: int) -> dict[str, float]:
    figure = Figure1()
    network = Traces(figure.names, every=figure.period / SECOND).topology(rounds + 1)
    graph, inputs, plan = figure.graph(), figure.inputs(rounds), figure.plan(network, 3)
    begin = time.perf_counter()
    done = simulate(graph, inputs, network, plan, settings=UNHURRIED, fingerprint=False)
    seconds = time.perf_counter() - begin
    assert done.complete, done.stalled
    received = sum(sum(each.received) for each in done.metrics.filters)
    return {
        "events_s": done.metrics.steps / seconds,
        "tuples_s": received / seconds,
        "figure1_hour_s": seconds,
    }


def _flow(rounds: int) -> dict[str, float]:
    begin = time.perf_counter()
    latency = run(Figure1(), rounds).latency
    seconds = time.perf_counter() - begin
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "flow_month_s": seconds,
        "flow_month_peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6,
        "flow_month_deliveries": latency.count,
        "flow_month_latency_p50_ms": latency.quantile(0.5) / 1e3,
        "flow_month_latency_p99_ms": latency.quantile(0.99) / 1e3,
    }
