"""Arrow = Spark streaming = Spark batch: for every operator, and for random queries.

``ANABRANCH_CONFORMANCE`` says how many random queries; ``make conformance`` takes 200. One that fails is
run again with ``pytest tests/conformance/test_spark.py -k "random and 17-"``.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from oracle import Oracle
from sparks import arrow, assert_alike, draw, spark, streamed
from streaming import batch_of, rows_of
from test_operators import DRAWS, SCHEMA, assert_same, graph_of, tables

from anabranch.engines.spark.batch import batch_streams
from anabranch.engines.spark.forms import FORMS
from anabranch.operators.registry import KERNELS

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

SEED = 1
QUERIES = int(os.environ.get("ANABRANCH_CONFORMANCE", "10"))
FEW = settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def test_every_operator_has_a_form() -> None:
    assert set(FORMS) == set(KERNELS)


@pytest.mark.parametrize("kind", DRAWS)
@FEW
@given(data=st.data(), a=tables("a"), b=tables("b"))
def test_an_operator_in_a_batch_is_what_its_definition_says(kind, data, a, b) -> None:
    graph = graph_of(DRAWS[kind](data.draw, "op", ["a", "b"]))
    inputs = {s.name: batch_of({"a": a, "b": b}[s.name], SCHEMA) for s in graph.sources}
    meant = Oracle(graph, {"a": a, "b": b}).streams
    for stream, made in batch_streams(spark(), graph, inputs, salts=2).items():
        assert_same(rows_of(made), meant[stream], stream)


@pytest.mark.parametrize("kind", DRAWS)
@settings(FEW, max_examples=1)
@given(data=st.data(), a=tables("a"), b=tables("b"))
def test_an_operator_in_a_stream_is_what_its_definition_says(kind, data, a, b, tmp_path_factory) -> None:
    graph = graph_of(DRAWS[kind](data.draw, "op", ["a", "b"]))
    inputs = {s.name: batch_of({"a": a, "b": b}[s.name], SCHEMA) for s in graph.sources}
    spark()
    oracle = Oracle(graph, {"a": a, "b": b})
    (made, poison), dropped = streamed(graph, inputs, 1, tmp_path_factory.mktemp(kind), restarts=False)
    for stream, rows in made.items():
        assert_same(rows_of(rows), oracle.streams[stream], stream)
    assert poison == sorted(set(oracle.poison))
    assert dropped == 0


@pytest.mark.parametrize("index", range(QUERIES), ids=lambda index: f"{index}-")
def test_a_random_query_is_the_same_on_every_engine(index: int, tmp_path: Path) -> None:
    graph, inputs = draw(SEED, index)
    meant, meant_poison = arrow(graph, inputs)
    for stream, rows in batch_streams(spark(), graph, inputs, salts=2).items():
        assert_alike(rows, meant[stream], f"{stream} of the batch")
    (made, poison), dropped = streamed(graph, inputs, index, tmp_path, restarts=index % 2 == 0)
    assert {output.stream for output in graph.outputs} & set(meant) <= set(made)
    for stream, streamed_rows in made.items():
        assert_alike(streamed_rows, meant[stream], f"{stream} of the stream")
    assert poison == meant_poison
    assert dropped == 0, "Spark has dropped rows as late"
