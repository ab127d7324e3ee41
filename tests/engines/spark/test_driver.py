"""One fragment on a real Spark in a process of its own, over a real log: whatever is killed, the output is
the ideal one, every row once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from one_site import Site

import anabranch as ab
from anabranch.engines.ideal import accepted, as_table, ideal_streams
from anabranch.engines.spark.replay import _chunk
from anabranch.engines.spark.run import Input
from anabranch.graph import Graph
from anabranch.input_tables import check_inputs
from anabranch.streams.batch import Batch, timestamps

pytestmark = pytest.mark.slow
CHUNKS = 14


def graph() -> Graph:
    q = ab.Query("netwatch")
    load = q.source("load", "host string, load double", lateness="5 seconds")
    rtt = q.source("rtt", "host string, ms double", lateness="5 seconds")
    busy = load.where("load > 0.3", name="busy")
    pairs = busy.join(rtt, on="host", within="3 seconds", where="ms > 20", name="pairs")
    q.output("busy", busy)
    q.output("pairs", pairs)
    by = {"by": "host", "n": "count(*)", "worst": "max(ms)", "best": "max_by(load, ms)"}
    q.output("alerts", pairs.aggregate("5 seconds", every="2 seconds", name="worst", **by))
    return q.graph


def table(seed: int, rows: int, **columns: Callable[[random.Random], object]) -> pa.Table:
    dice = random.Random(seed)
    ts = [dice.randrange(-30_000_000, 30_000_000) for _ in range(rows)]
    arrival = sorted((t + dice.randrange(4_000_000), t) for t in ts)
    return pa.table(
        {
            "ts": [t for _, t in arrival],
            "arrival": [a for a, _ in arrival],
            **{name: [draw(dice) for _ in ts] for name, draw in columns.items()},
        }
    )


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    made = Case(tmp_path)
    yield made
    made.site.close()


class Case:
    def __init__(self, directory: Path) -> None:
        self.graph = graph()
        host = lambda dice: dice.choice(["a", "b", None, "c"])  # noqa: E731
        self.tables = {
            "load": table(1, 300, host=host, load=lambda dice: dice.random()),
            "rtt": table(2, 300, host=host, ms=lambda dice: dice.choice([None, dice.random() * 100])),
        }
        checked = check_inputs(self.graph, self.tables)
        self.fed: dict[str, Batch | None] = {s.name: accepted(s, checked[s.name]) for s in self.graph.sources}
        self.site = Site(self.graph, self.graph.order(), ("busy", "pairs", "worst"), directory)

    def feed(self, first: int, end: int) -> None:
        for chunk in range(first, end):
            for stream, rows in self.fed.items():
                self.site.logs[stream].append(*_chunk(rows, chunk, CHUNKS))

    def check(self) -> None:
        meant = ideal_streams(self.graph, self.tables)
        for stream in self.site.exports:
            rows = self.site.table(stream).combine_chunks().to_batches()
            made = as_table(rows[0] if rows else None, self.site.schemas[stream])
            assert made.num_rows == meant[stream].num_rows
            assert made.equals(meant[stream]), stream
            assert made.num_rows > 20
        assert self.site.driver is not None
        progress = self.site.driver.progress()
        assert progress
        assert sum(event.dropped for event in progress) == 0


def test_what_is_killed_goes_on_where_it_was(case: Case) -> None:
    site = case.site
    site.start_driver()
    started = site.start_fragment()
    assert not started.resumed
    case.feed(0, 5)
    site.wait_until(lambda: site.kept["worst"])
    case.feed(5, 8)
    site.wait_until(lambda: site.taken["worst"].batch >= 2)
    assert site.driver is not None
    site.driver.kill()
    site.start_driver()
    again = site.start_fragment()
    assert again.resumed, again
    assert again.run == started.run
    case.feed(8, CHUNKS)
    site.wait_until(site.finished)
    case.check()
    assert site.driver.leave() == 0


@pytest.mark.parametrize(
    "settings",
    [{"conf": {"spark.driver.maxResultSize": "200k"}}, {"along_bytes": 0}],
    ids=["makes-much", "takes-in-much"],
)
def test_what_is_too_much_for_the_driver_is_sent_by_tasks(tmp_path: Path, settings: dict[str, Any]) -> None:
    q = ab.Query("much")
    q.output("all", q.source("words", "word string").where("word <> ''", name="kept"))
    words = pa.table({"ts": range(4_000), "word": [f"{n:0>200}" for n in range(4_000)]})
    fed = accepted(q.graph.sources[0], check_inputs(q.graph, {"words": words})["words"])
    site = Site(q.graph, ("kept",), ("kept",), tmp_path)
    site.settings = msgspec.structs.replace(site.settings, **settings)
    try:
        site.logs["words"].append(*_chunk(fed, 0, 1))
        site.start_driver()
        site.start_fragment()
        site.wait_until(site.finished)
        assert sorted(site.table("kept")["word"].to_pylist()) == words["word"].to_pylist()
        # The name of a task has its partition and its attempt in it.
        senders = [sender for done, _ in site.delivered for sender in done.pieces]
        assert senders
        assert all(sender.count(".") == 2 for sender in senders), senders
    finally:
        site.close()


def test_a_backlog_before_a_join_is_taken_in_by_little(case: Case) -> None:
    """What a join has read it holds in memory, so what has come while the site was away must not be one
    batch."""
    site = case.site
    site.settings = msgspec.structs.replace(site.settings, join_bytes=1)
    case.feed(0, CHUNKS)
    site.start_driver()
    site.start_fragment()
    site.wait_until(site.finished)
    case.check()
    read = [done.positions["load"] for done, _ in site.delivered]
    assert read == sorted(read)
    assert max(after - before for before, after in pairwise([0, *read])) == 1


def test_a_stream_that_only_promises_is_a_batch_without_rows(tmp_path: Path) -> None:
    q = ab.Query("quiet")
    q.output("all", q.source("words", "word string").where("word <> ''", name="kept"))
    site = Site(q.graph, ("kept",), ("kept",), tmp_path)
    try:
        site.start_driver()
        site.start_fragment()
        for promise in (1_000_000, 2_000_000):
            site.logs["words"].append(None, promise)
            site.wait_until(lambda promise=promise: site.promised.get((site.current, "kept")) == promise)
        assert not site.output("kept")
    finally:
        site.close()


def test_a_lost_checkpoint_is_made_up_for_from_the_log(case: Case) -> None:
    site = case.site
    site.start_driver()
    started = site.start_fragment()
    case.feed(0, 9)
    site.wait_until(lambda: site.kept["worst"])
    assert site.driver is not None
    site.driver.kill()
    site.lose_checkpoint()
    site.start_driver()
    again = site.start_fragment()
    assert not again.resumed
    assert again.run != started.run
    case.feed(9, CHUNKS)
    site.wait_until(site.finished)
    case.check()


def test_a_fragment_is_stopped_and_resumed_unless_something_has_changed(case: Case) -> None:
    site = case.site
    site.start_driver()
    site.start_fragment()
    case.feed(0, 4)
    site.wait_until(lambda: site.kept["worst"])
    site.stop_fragment()
    before = len(site.delivered)
    case.feed(4, 6)
    again = site.start_fragment()
    assert again.resumed, again
    site.wait_until(lambda: len(site.delivered) > before + 1)
    site.stop_fragment()
    # An egress log that has lost a batch.
    taken, site.taken = site.taken, {}
    lost = site.start_fragment()
    assert not lost.resumed
    assert "egress log" in lost.reason
    site.wait_until(lambda: site.kept["worst"])
    site.stop_fragment()
    # An input with a new gap.
    gap = max(int(timestamps(rows).max()) for rows in case.fed.values() if rows is not None)
    assert taken
    late = site.start_fragment(load=Input(0, gap))
    assert not late.resumed
    assert "gap" in late.reason


def test_a_log_that_was_trimmed_or_went_on_otherwise_is_noticed(case: Case) -> None:
    site = case.site
    site.start_driver()
    site.start_fragment()
    case.feed(0, 6)
    site.wait_until(lambda: site.kept["worst"])
    site.stop_fragment()
    log = "netwatch-in-load"
    case.feed(6, 9)
    site.connection.ask(f"STREAM.PURGE.{log}", {"seq": 9})
    trimmed = site.start_fragment(load=Input(8, -(2**62), 0))
    assert not trimmed.resumed
    assert "begins at" in trimmed.reason
