"""Every operator, alone and in chains: streamed in any lawful way it yields what its definition says."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import COLUMNS, Oracle, Row
from streaming import Collector, batch_of, bits, pieces, rows_of

from anabranch.engines.arrow import ArrowEngine
from anabranch.graph import (
    Aggregate,
    Column,
    CountAggregate,
    Custom,
    Filter,
    Graph,
    Join,
    Map,
    Output,
    Source,
    TopK,
    Union,
)
from anabranch.operators.registry import KERNELS
from anabranch.streams.batch import with_ids
from anabranch.streams.hashing import source_ids
from anabranch.streams.punctuation import BEGINNING, END, later
from anabranch.types import arrow_schema

SCHEMA = with_ids(arrow_schema(COLUMNS))
SAME = (("g", "g"), ("k", "k"), ("x", "x"))

spans = st.sampled_from([(5, 5), (10, 5), (7, 3), (3, 7), (12, 1), (1, 1)])
AGGREGATED = (
    ("n", "count(*)"),
    ("s", "sum(x)"),
    ("k1", "count(k)"),
    ("lo", "min(k)"),
    ("hi", "max(x)"),
    ("mean", "avg(k)"),
    ("sd", "stddev(x)"),
    ("best", "max_by(k, x)"),
)
groups = st.sampled_from([(), ("g",), ("x",), ("g", "k")])


@st.composite
def tables(draw, name):
    """A source's tuples, negative and equal times, nulls, NaN and both zeros included."""
    values = draw(
        st.lists(
            st.tuples(
                st.integers(-20, 20),
                st.sampled_from([None, "a", "b", "é"]),
                st.sampled_from([None, -1, 1, 2, 2, 3]),
                st.sampled_from([None, math.nan, -0.0, 0.0, 1.1, 2.3, 1e9, -7.7]),
            ),
            max_size=25,
        )
    )
    hi, lo = source_ids(name, name, 0, len(values))
    return [
        Row(ts, int(h), int(low), {"g": g, "k": k, "x": x})
        for (ts, g, k, x), h, low in zip(values, hi, lo, strict=True)
    ]


def _filter(draw, name, inputs):
    return [
        Filter(name, inputs[0], draw(st.sampled_from(["x > 1", "k % 2 = 0 OR g = 'a'", "g IS NULL", "true"])))
    ]


def _map(draw, name, inputs):
    return [Map(name, inputs[0], (("g", "upper(g)"), ("k", "k + 1"), ("x", "x * 2")))]


def _union(draw, name, inputs):
    return [Union(name, tuple(draw(st.lists(st.sampled_from(inputs), min_size=2, max_size=3))))]


def _join(draw, name, inputs):
    on = draw(st.sampled_from([(), ("g",), ("x",), ("g", "k")]))
    wheres = [None]
    if "k" not in on:
        wheres.append("k > right_k")
    if "x" not in on:
        wheres.append("x > 1 OR right_x > 1")
    pair = [draw(st.sampled_from(inputs)) for _ in range(2)]
    join = Join(name, *pair, draw(st.sampled_from([1, 4, 10])), on, draw(st.sampled_from(wheres)))
    return [join, Map(name + "_", name, SAME)]


def _rejoinable(name, by):
    g = "g" if "g" in by else "CAST(NULL AS string)"
    return Map(name + "_", name, (("g", g), ("k", "n"), ("x", "s")))


def _aggregate(draw, name, inputs):
    (window, every), by = draw(spans), draw(groups)
    return [Aggregate(name, inputs[0], window, every, by, AGGREGATED), _rejoinable(name, by)]


def _count_aggregate(draw, name, inputs):
    count, every = draw(st.sampled_from([(1, 1), (3, 1), (3, 3), (2, 5), (5, 2)]))
    by = draw(groups)
    return [CountAggregate(name, inputs[0], count, every, by, AGGREGATED), _rejoinable(name, by)]


def _top_k(draw, name, inputs):
    window, every = draw(spans)
    by = draw(st.sampled_from(["x", "k", "g", "k + 1"]))
    return [TopK(name, inputs[0], draw(st.integers(1, 4)), by, window, every), Map(name + "_", name, SAME)]


def _custom(draw, name, inputs):
    if draw(st.booleans()):
        shout = Custom(name, inputs[0], "customs:shout", (Column("shouted", "string"), Column("k", "bigint")))
        return [shout, Map(name + "_", name, (("g", "shouted"), ("k", "k"), ("x", "CAST(NULL AS double)")))]
    split = Custom(name, inputs[0], "customs:split", (Column("part", "int"),))
    g = "CAST(NULL AS string)"
    return [
        split,
        Map(name + "_", name, (("g", g), ("k", "CAST(part AS bigint)"), ("x", "CAST(NULL AS double)"))),
    ]


def _custom_window(draw, name, inputs):
    (window, every), by = draw(spans), draw(groups.filter(lambda by: "k" not in by))
    columns = (Column("path", "string"), Column("n", "bigint"))
    path = Custom(name, inputs[0], "customs:Path", columns, window, every, by)
    return [path, Map(name + "_", name, (("g", "path"), ("k", "n"), ("x", "CAST(NULL AS double)")))]


DRAWS = {
    "filter": _filter,
    "map": _map,
    "union": _union,
    "join": _join,
    "aggregate": _aggregate,
    "count_aggregate": _count_aggregate,
    "top_k": _top_k,
    "custom": _custom,
    "custom_window": _custom_window,
}


def graph_of(operators):
    sources = (Source("a", COLUMNS), Source("b", COLUMNS))
    return Graph("q", sources, tuple(operators), (Output("out", operators[-1].name),)).validate()


@st.composite
def chains(draw, kinds=frozenset(DRAWS)):
    operators, streams = [], ["a", "b"]
    for i in range(draw(st.integers(2, 4))):
        kind = draw(st.sampled_from(sorted(kinds)))
        inputs = draw(st.permutations(streams)) if draw(st.booleans()) else streams[::-1]
        made = DRAWS[kind](draw, f"op{i}", inputs)
        operators += made
        streams.append(made[-1].name)
    return graph_of(operators)


def close(a, b, largest):
    """To 1e-9; and what is left of numbers as large as ``largest`` when they are taken from one another."""
    if isinstance(a, float) and isinstance(b, float):
        left = max(1e-9, 1e-14 * largest)
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=left) or (math.isnan(a) and math.isnan(b))
    return a == b and (a is None) == (b is None)


def largest_of(streams: dict[str, list[Row]]) -> float:
    numbers = [v for rows in streams.values() for row in rows for v in row.values.values()]
    return max((abs(v) for v in numbers if isinstance(v, float) and math.isfinite(v)), default=0.0)


def assert_same(made: list[Row], meant: list[Row], stream: str, largest: float = 0.0) -> None:
    made, meant = sorted(made, key=lambda r: r[:3]), sorted(meant, key=lambda r: r[:3])
    assert [row[:3] for row in made] == [row[:3] for row in meant], stream
    for a, b in zip(made, meant, strict=True):
        assert list(a.values) == list(b.values), stream
        for name in a.values:
            assert close(a.values[name], b.values[name], largest), (stream, name, a, b)


def run(graph, inputs, seed):
    engine = ArrowEngine(graph, graph.order())
    engine.start(dict.fromkeys(engine.inputs, BEGINNING))
    collector = Collector(engine)
    fed = {stream: batch_of(inputs[stream], SCHEMA) for stream in engine.inputs}
    for piece in pieces(fed, Random(seed)):
        collector.feed(*piece)
    return collector


def check(graph, inputs, seed):
    oracle = Oracle(graph, inputs)
    collector = run(graph, inputs, seed)
    for stream, batch in collector.all_rows().items():
        assert_same(rows_of(batch), oracle.streams[stream], stream, largest_of(oracle.streams))
        assert collector.punctuation[stream] == END
    assert sorted(collector.poison) == sorted(oracle.poison)
    again = run(graph, inputs, seed + 1)
    for stream, batch in collector.all_rows().items():
        assert bits(batch) == bits(again.all_rows()[stream])


seeds = st.integers(0, 2**32)


def test_the_suite_covers_the_registry():
    assert len(DRAWS) == len(KERNELS) + 1  # a Custom with and one without window


@pytest.mark.parametrize("kind", DRAWS)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), a=tables("a"), b=tables("b"), seed=seeds)
def test_an_operator_yields_what_its_definition_says(kind, data, a, b, seed):
    graph = graph_of(DRAWS[kind](data.draw, "op", ["a", "b"]))
    check(graph, {"a": a, "b": b}, seed)


@settings(max_examples=60, deadline=None)
@given(graph=chains(), a=tables("a"), b=tables("b"), seed=seeds)
def test_a_chain_yields_what_its_definition_says(graph, a, b, seed):
    check(graph, {"a": a, "b": b}, seed)


@pytest.mark.parametrize("kind", sorted(set(DRAWS) - {"count_aggregate"}))
@settings(max_examples=30, deadline=None)
@given(data=st.data(), a=tables("a"), b=tables("b"), seed=seeds)
def test_a_snapshot_in_mid_stream_changes_nothing(kind, data, a, b, seed):
    graph = graph_of(DRAWS[kind](data.draw, "op", ["a", "b"]))
    whole = run(graph, {"a": a, "b": b}, seed)
    engine = ArrowEngine(graph, graph.order())
    fed = {stream: batch_of({"a": a, "b": b}[stream], SCHEMA) for stream in engine.inputs}
    engine.start(dict.fromkeys(engine.inputs, BEGINNING))
    collector = Collector(engine)
    for i, piece in enumerate(pieces(fed, Random(seed))):
        if (seed >> (i % 32)) & 1:
            snapshot = collector.engine.snapshot()
            collector.engine = ArrowEngine(graph, graph.order())
            collector.engine.restore(snapshot)
            collector.engine.start(dict.fromkeys(engine.inputs, BEGINNING))
        collector.feed(*piece)
    for stream, batch in whole.all_rows().items():
        assert bits(batch) == bits(collector.all_rows()[stream])
    assert collector.punctuation == whole.punctuation
    assert sorted(collector.poison) == sorted(whole.poison)


def check_late_start(graph, inputs, seed, late, hole):
    """Up to ``late`` inputs have only some of their tuples; with a hole, also from there on for a while."""
    random = Random(seed)
    until = late if hole is None else late + hole
    partial = {s: [r for r in rows if r.ts > until or random.random() < 0.5] for s, rows in inputs.items()}
    engine = ArrowEngine(graph, graph.order())
    collector = Collector(engine)
    fed = {stream: batch_of(partial[stream], SCHEMA) for stream in engine.inputs}
    complete_from = engine.start(dict.fromkeys(engine.inputs, late))
    at = dict.fromkeys(engine.inputs, BEGINNING)
    for stream, rows, p in pieces(fed, random):
        if p is not None and hole is not None and p > late and at[stream] <= late:
            complete_from = engine.start(dict.fromkeys(engine.inputs, until))
        at[stream] = at[stream] if p is None else p
        collector.feed(stream, rows, p)
    meant = Oracle(graph, inputs).streams
    for stream, batch in collector.all_rows().items():
        made = rows_of(batch)
        certain = [row for row in meant[stream] if row.ts > complete_from[stream]]
        assert_same(
            [row for row in made if row.ts > complete_from[stream]], certain, stream, largest_of(meant)
        )
        # Earlier ones are true where they are there at all.
        known = {row[:3]: row for row in meant[stream]}
        early = [row for row in made if row.ts <= complete_from[stream]]
        assert_same(early, [known[row[:3]] for row in early if row[:3] in known], stream, largest_of(meant))
    return until, complete_from


lates, holes = st.integers(-15, 15), st.none() | st.integers(0, 20)


@pytest.mark.parametrize("kind", sorted(set(DRAWS) - {"count_aggregate"}))
@settings(max_examples=40, deadline=None)
@given(data=st.data(), a=tables("a"), b=tables("b"), seed=seeds, late=lates, hole=holes)
def test_a_late_start_emits_nothing_false_and_everything_it_promises(kind, data, a, b, seed, late, hole):
    graph = graph_of(DRAWS[kind](data.draw, "op", ["a", "b"]))
    until, complete_from = check_late_start(graph, {"a": a, "b": b}, seed, late, hole)
    assert complete_from["op"] == later(until, graph.span("op"))


@settings(max_examples=60, deadline=None)
@given(graph=chains(set(DRAWS) - {"count_aggregate"}), a=tables("a"), b=tables("b"), seed=seeds, late=lates)
def test_a_late_start_of_a_chain_emits_nothing_false(graph, a, b, seed, late):
    check_late_start(graph, {"a": a, "b": b}, seed, late, None)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), a=tables("a"), seed=seeds, late=st.integers(-15, 15), taken=st.integers(-10, 25))
def test_a_count_aggregate_waits_for_a_snapshot(data, a, seed, late, taken):
    graph = graph_of(_count_aggregate(data.draw, "op", ["a"])[:1])
    random = Random(seed)
    peer = ArrowEngine(graph, ("op",))
    peer.start({"a": BEGINNING})
    whole = batch_of([row for row in a if row.ts <= taken or random.random() < 0.5], SCHEMA)
    peer.feed("a", whole, taken)
    snapshot = peer.snapshot()

    engine = ArrowEngine(graph, ("op",))
    collector = Collector(engine)
    partial = [row for row in a if row.ts > late or random.random() < 0.5]
    todo = pieces({"a": batch_of(partial, SCHEMA)}, random)
    cut = random.randrange(len(todo) + 1)
    assert engine.start({"a": late}) == {"op": END}
    fed = BEGINNING
    for piece in todo[:cut]:
        collector.feed(*piece)
        fed = max(fed, piece[2] or BEGINNING) if piece[2] is not None else fed
    assert rows_of(collector.all_rows()["op"]) == []
    assert collector.punctuation["op"] == BEGINNING
    engine.restore(snapshot)
    if taken < late:
        # That does not reach to where the input is complete from.
        assert engine.start({"a": late}) == {"op": END}
        return
    assert engine.start({"a": late}) == {"op": taken}
    collector.feed("a", None, fed)
    for piece in todo[cut:]:
        collector.feed(*piece)
    meant = [row for row in Oracle(graph, {"a": a}).streams["op"] if row.ts > taken]
    assert_same(rows_of(collector.all_rows()["op"]), meant, "op")
