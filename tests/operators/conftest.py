"""Small streams for the tests of single operators, which may import what stands beside them."""

import sys
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.graph import Column, Graph, Source
from anabranch.operators.registry import kernel
from anabranch.streams.batch import with_ids
from anabranch.streams.punctuation import BEGINNING

sys.path.insert(0, str(Path(__file__).parent))

COLUMNS = (Column("g", "string"), Column("k", "bigint"))
SCHEMA = with_ids(pa.schema({"g": pa.string(), "k": pa.int64()}))


@pytest.fixture
def rows():
    """Builds a batch of (ts, g, k); ids are numbered on over all batches of a test."""
    made = 0

    def build(*tuples):
        nonlocal made
        first, made = made, made + len(tuples)
        return pa.RecordBatch.from_pydict(
            {
                "_ts": [t[0] for t in tuples],
                "_hi": [0] * len(tuples),
                "_lo": list(range(first, made)),
                "g": [t[1] for t in tuples],
                "k": [t[2] for t in tuples],
            },
            schema=SCHEMA,
        )

    return build


@pytest.fixture
def start():
    """A kernel of one operator over sources a and b, complete from the beginning (``None``: not started)."""

    def build(operator, complete_from=BEGINNING):
        made = kernel(operator, Graph("q", (Source("a", COLUMNS), Source("b", COLUMNS)), (operator,), ()))
        if complete_from is not None:
            made.start((complete_from,) * len(operator.inputs))
        return made

    return build
