"""Join: who meets whom, and who is let go."""

import numpy as np
import pyarrow as pa
import pytest

from anabranch.graph import Join
from anabranch.operators.join_buffer import JoinBuffer
from anabranch.streams.punctuation import BEGINNING, END


def pairs(batch):
    return (
        []
        if batch is None
        else sorted(zip(batch.column("k").to_pylist(), batch.column("right_k").to_pylist(), strict=True))
    )


def test_exactly_within_apart_is_too_far(start, rows):
    kernel = start(Join("op", "a", "b", 10, ("g",)))
    kernel.process(0, rows((0, "x", 1)))
    assert pairs(kernel.process(1, rows((10, "x", 2), (9, "x", 3), (-9, "x", 4), (-10, "x", 5)))) == [
        (1, 3),
        (1, 4),
    ]


def test_null_keys_match_nothing(start, rows):
    kernel = start(Join("op", "a", "b", 10, ("g",)))
    kernel.process(0, rows((0, None, 1), (0, "x", 2)))
    kernel.process(0, rows((0, None, 3)))
    assert pairs(kernel.process(1, rows((0, None, 4), (0, "x", 5)))) == [(2, 5)]
    assert kernel.process(1, rows((0, None, 6))) is None


def test_a_stream_joined_with_itself_gives_every_ordered_pair(start, rows):
    kernel = start(Join("op", "a", "a", 10, ("g",)))
    found = []
    for batch in (rows((0, "x", 1)), rows((1, "x", 2))):
        found += pairs(kernel.process(0, batch)) + pairs(kernel.process(1, batch))
    assert sorted(found) == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_a_row_in_a_large_buffer_of_many_small_batches_is_found(start, rows):
    kernel = start(Join("op", "a", "b", 10, ("k",)))
    for k in range(500):
        kernel.process(0, rows((k % 7, f"g{k}", k % 100)))
    met = kernel.process(1, rows((3, "y", 42), (3, "z", 99)))
    assert sorted(met.column("g").to_pylist()) == sorted(
        [f"g{k}" for k in range(42, 500, 100)] + [f"g{k}" for k in range(99, 500, 100)]
    )
    assert set(zip(met.column("k").to_pylist(), met.column("right_g").to_pylist(), strict=True)) == {
        (42, "y"),
        (99, "z"),
    }


def test_what_has_met_all_its_partners_is_let_go(start, rows):
    kernel = start(Join("op", "a", "b", 10, ("g",)))
    for ts in range(5000):
        kernel.process(0, rows((ts, "x", ts)))
        kernel.punctuate(1, ts)
    assert kernel._buffers[0].count < 200
    assert pairs(kernel.process(1, rows((5000, "x", -1)))) == [(k, -1) for k in range(4991, 5000)]


def test_nothing_is_kept_for_an_input_that_has_ended(start, rows):
    kernel = start(Join("op", "a", "b", 10, ("g",)))
    kernel.punctuate(1, END)
    kernel.process(0, rows((0, "x", 1), (5, "x", 2)))
    assert kernel._buffers[0].count == 0
    assert kernel.punctuation == BEGINNING


@pytest.mark.parametrize(
    ("given", "told"), [((0, 5), 15), ((BEGINNING, BEGINNING), BEGINNING), ((0, END), END)]
)
def test_complete_from(start, given, told):
    assert start(Join("op", "a", "b", 10)).start(given) == told


@pytest.mark.parametrize("behind", [-1, 300, 800, 2000])
def test_a_buffer_finds_the_same_rows_before_and_after_moving_them(behind):
    rng = np.random.default_rng(1)
    n = 3000
    ts, key = rng.integers(0, 1000, n), rng.integers(0, 5, n)
    ids = np.arange(n)
    buffer, start = JoinBuffer(), 0
    while start < n:
        some = slice(start, start + int(rng.integers(1, 30)))
        rows = pa.RecordBatch.from_arrays([pa.array(ids[some])], names=["id"])
        buffer.add(rows, ts[some], ids[some], ids[some], key[some], key[some])
        start = some.stop
    buffer.evict(behind)
    assert buffer.count == (ts > behind).sum()
    probe, keys = np.array([900, 850, 20]), np.array([2, 4, 1])
    new, old = buffer.matches(probe, keys, keys, 60)
    found = sorted(zip(new.tolist(), buffer.numbers(old)[1].tolist(), strict=True))
    assert found == [
        (p, i)
        for p in range(3)
        for i in range(n)
        if ts[i] > behind and key[i] == keys[p] and abs(probe[p] - ts[i]) < 60
    ]
    if found:
        rows = np.sort(old)
        assert buffer.take(rows).column(0).to_pylist() == buffer.numbers(rows)[1].tolist()
