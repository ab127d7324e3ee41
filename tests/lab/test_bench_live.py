"""The benchmarks of live sites: their arithmetic, and that what they measure is exact."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest

from anabranch.engines.ideal import ideal
from anabranch.lab import bench_failover, bench_footprint, bench_latency, bench_throughput
from anabranch.lab.bench_failover import Killed, Outcome, Times
from anabranch.lab.bench_live import SECOND, Application, batch_times, silences
from anabranch.lab.bench_throughput import Size, results, rows_of
from anabranch.lab.places import world
from anabranch.lab.processes import Meter, memory, with_children
from anabranch.lab.queries import QUERIES
from anabranch.streams.batch import TIMESTAMP


def test_a_silence_that_a_kill_falls_into_counts_from_its_beginning_to_its_end() -> None:
    came = np.array([0, 10, 20, 90, 100])
    assert silences(came, 25, 95).max() == 70
    assert silences(came, 25, 30).max() == 70
    assert silences(came, 0, 20).tolist() == [10, 10, 70]
    assert silences(came, 100, 400).tolist() == [300]


def test_batches_are_averaged_by_name_from_a_time_on() -> None:
    def line(at: float, what: str, **took: list[int]) -> bytes:
        return json.dumps({"time": at, "what": what, "milliseconds": took}).encode()

    lines = [
        line(1.0, "engine progress", triggerExecution=[900], addBatch=[800]),
        line(3.0, "engine progress", triggerExecution=[100, 300], addBatch=[50, 70]),
        line(3.5, "engine started"),
        line(4.0, "engine progress", triggerExecution=[200], addBatch=[60]),
    ]
    found = batch_times(lines, 2 * SECOND)
    assert found["addBatch"] == 60.0
    assert found["triggerExecution"] == found["median"] == 200.0
    assert found["square"] == pytest.approx((1e4 + 9e4 + 4e4) / 3)


def test_the_stages_of_a_latency_add_up_to_the_whole() -> None:
    def counted(stage: str, stream: str, ms: float, rows: int) -> dict[tuple[str, str], float]:
        return {(stage, stream): ms * 1e3 * rows}

    rows = {("log_rows", stream): 100.0 for stream in ("out/load", "in/load", "out/made")}
    after = {**rows, ("branch_rows", "load"): 100.0, ("engine_out_rows", "made"): 100.0}
    ages = [
        ("log_age_asked_us", "out/load", 1.0),
        ("log_age_us", "out/load", 3.0),
        ("branch_age_us", "load", 4.0),
        ("log_age_asked_us", "in/load", 6.0),
        ("log_age_us", "in/load", 9.0),
        ("engine_out_age_us", "made", 129.0),
        ("log_age_asked_us", "out/made", 140.0),
        ("log_age_us", "out/made", 142.0),
    ]
    for stage, stream, ms in ages:
        after |= counted(stage, stream, ms, 100)
    batches = {"triggerExecution": 100.0, "square": 1e4, "latestOffset": 5.0, "queryPlanning": 10.0}
    found = bench_latency.stages({}, after, batches, 145_000.0)
    assert found == {
        "entry": 1.0,
        "entry_log": 2.0,
        "link": 1.0,
        "filter": 2.0,
        "log": 3.0,
        "spark_batch_before": 50.0,
        "spark_planning": 10.0,
        "spark_run": 60.0,
        "commit": 11.0,
        "out_log": 2.0,
        "delivery": 3.0,
    }


def test_the_fastest_path_is_the_least_over_the_copies() -> None:
    topology = world((bench_latency.ENTRY, *bench_latency.COPIES, bench_latency.NEAR))
    over = {
        copy: topology.delay_at(bench_latency.ENTRY, copy, 0) + topology.delay_at(copy, bench_latency.NEAR, 0)
        for copy in bench_latency.COPIES
    }
    assert len(set(over.values())) == 2
    assert bench_latency.fastest_path(topology) * 1e3 == min(over.values())


def test_failover_reports_medians_and_the_worst() -> None:
    ours = Outcome(
        tuple(Killed(s, 0.1, 0.2, 0.4, "left") for s in (0.2, 0.3, 0.5)), batch=0.1, missing=0, repeated=0
    )
    plain = Outcome(tuple(Killed(s, 0.1, 0.2) for s in (6.0, 9.0, 12.0)), batch=0.1, missing=0, repeated=7)
    told = bench_failover.report(ours, plain)
    assert (told["anabranch_silence_s"], told["anabranch_silence_worst_s"]) == (0.3, 0.5)
    assert (told["plain_spark_silence_s"], told["plain_spark_silence_worst_s"]) == (9.0, 12.0)
    assert (told["ratio"], told["ratio_worst"]) == (30.0, 12.0)
    assert (told["batches_above_normal"], told["batches_above_normal_worst"]) == (2.0, 4.0)
    assert told["plain_spark_repeated"] == 7


@pytest.mark.parametrize("kind", QUERIES)
@pytest.mark.parametrize("sent", [1, 99_999, 100_000, 100_001, 250_000])
def test_as_many_results_are_waited_for_as_the_ideal_run_has(kind: str, sent: int) -> None:
    graph = QUERIES[kind]()
    late = sent + SECOND
    tables = {}
    for source in graph.sources:
        batches = [rows_of(kind, source.name, 0, sent), rows_of(kind, source.name, late, 1)]
        tables[source.name] = pa.Table.from_batches(batches)
    everything = ideal(graph, tables)["out"]
    last = rows_of(kind, "load", late, 1).column("ts")[0].value
    before = everything.filter(pa.compute.less(everything.column("ts"), pa.scalar(last, TIMESTAMP)))
    closed = before.num_rows if kind == "aggregate" else everything.num_rows
    assert results(kind, sent, closed=True) == closed


def test_a_meter_counts_processor_time_that_was_spent_since() -> None:
    here = [psutil.Process()]
    meter = Meter(here)
    begun = time.process_time()
    while time.process_time() < begun + 0.2:
        pass
    assert sum(meter.spent(here).values()) == pytest.approx(time.process_time() - begun, abs=0.05)
    assert sum(memory(here).values()) > 1_000_000
    assert with_children(here[0].pid)[0] == here[0]


def test_an_application_knows_how_long_its_tuples_have_waited() -> None:
    async def come() -> None:
        async def batches():  # type: ignore[no-untyped-def]
            ts = pa.array([100, 200, 300], pa.int64()).view(TIMESTAMP)
            yield pa.RecordBatch.from_arrays([ts], names=["_ts"])

        async def end() -> None: ...

        application = Application(batches(), end)
        await application.until(3, 5.0)
        at = application.arrivals[0].at
        assert application.waited(200, 300).tolist() == [at - 200]
        await application.close()

    asyncio.run(come())


def test_a_benchmark_that_is_told_to_stop_leaves_nothing_behind(tmp_path: Path) -> None:
    script = f"""
import asyncio, tempfile
from anabranch.lab.bench_live import run
with tempfile.TemporaryDirectory(dir={str(tmp_path)!r}):
    async def work():
        print("ready", flush=True)
        await asyncio.sleep(60)
    run(work())
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"ready\n"
        process.terminate()
        assert process.wait(20) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


# --- on real sites


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("kind", QUERIES)
def test_throughput_is_measured_on_all_that_was_sent(kind: str) -> None:
    told = bench_throughput.measure([kind], {kind: Size(2_000, 3_000, 500)}, agent_rows=20_000)
    assert told["agent_rows_s_core"] > 0
    (query,) = told["queries"]
    assert query["name"] == kind
    assert query["k1_over_plain"] == pytest.approx(query["k1_rows_s"] / query["plain_rows_s"], rel=0.01)
    assert query["k2_cpu_over_k1"] > 0
    assert set(query["cpu_s_per_mrows"]) == {"plain", "k1", "k2"}


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_a_kill_loses_nothing_and_repeats_nothing() -> None:
    told = bench_failover.measure(rounds=1, rate=100.0, times=Times(2.0, 2.0, 2.0))
    assert (told["missing"], told["repeated"], told["plain_spark_missing"]) == (0, 0, 0)
    assert set(told["killed"]) < {"left", "right"}
    for key in ("plain_spark_silence_s", "anabranch_silence_s", "ratio", "normal_interval_s", "batch_s"):
        assert told[key] > 0


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_latency_is_told_with_its_stages() -> None:
    told = bench_latency.measure(rate=200.0, seconds=4.0, warm=2.0)
    assert 0 < told["p50_ms"] <= told["p99_ms"]
    assert sum(told["stages"].values()) == pytest.approx(told["mean_ms"], abs=1.0)
    assert told["wan"]["p50_ms_above"] == pytest.approx(
        told["wan"]["p50_ms"] - told["wan"]["fastest_path_ms"], abs=0.2
    )
    assert told["wan"]["p50_ms"] > told["wan"]["fastest_path_ms"]


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_a_footprint_is_of_all_processes_by_kind(tmp_path: Path) -> None:
    told = bench_footprint.measure(sites=2, rate=50.0, seconds=3.0, settle=1.0, warm=0.0)
    assert {"agent", "jvm", "log server", "spark driver", "spark source or sink", "supervisor"} <= set(
        told["pss_mb"]
    )
    assert told["processes"]["jvm"] == told["processes"]["agent"] == 2
    assert "other" not in told["processes"], told["processes"]
    assert told["pss_gb"] == pytest.approx(sum(told["pss_mb"].values()) / 1e3, abs=0.02)
    assert told["busy_cores"] > 0
