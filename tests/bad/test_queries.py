"""Every malformed query, in Python or in JSON, yields a sentence: what is wrong, where, and what to do."""

import json
import runpy
from pathlib import Path

import pytest

from anabranch.graph import Graph, QueryError

HERE = Path(__file__).parent / "queries"
EXPECTED = json.loads((HERE / "expected.json").read_text("utf-8"))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_malformed_query_is_refused_with_a_sentence(name):
    path = HERE / name
    with pytest.raises(QueryError) as caught:
        Graph.load(path) if path.suffix == ".json" else runpy.run_path(str(path))
    message = str(caught.value)
    assert EXPECTED[name] in message
    assert message.endswith(".")
    if path.suffix == ".json":
        assert message.startswith(f"{path}: ")


def test_every_file_has_an_expectation():
    assert sorted(path.name for path in HERE.iterdir() if path.is_file()) == sorted(
        [*EXPECTED, "expected.json"]
    )
