"""Canonical order, against sorting with a key of Python values."""

import datetime
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.streams.batch import assemble, timestamps, with_ids
from anabranch.streams.order import Sorter, canonical_order, sort
from anabranch.streams.punctuation import BEGINNING, END

TYPES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int8(): st.integers(-3, 3),
    pa.bool_(): st.booleans(),
    pa.float64(): st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf, -math.inf]),
    pa.float32(): st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf, -math.inf]),
    pa.string(): st.sampled_from(["", "a", "aa", "b", "ß", "\U0001f300", "￿"]),
    pa.binary(): st.binary(max_size=2),
    pa.date32(): st.dates(datetime.date(1969, 12, 30), datetime.date(1970, 1, 3)),
    pa.timestamp("us", "UTC"): st.sampled_from(
        [datetime.datetime(1969, 1, 1), datetime.datetime(2030, 1, 1)]
    ),
}


def batch_of(ts, values, types, first_id=0):
    ids = np.arange(first_id, first_id + len(ts))
    columns = [pa.array([row[i] for row in values], type_) for i, type_ in enumerate(types)]
    schema = with_ids(pa.schema([(f"c{i}", type_) for i, type_ in enumerate(types)]))
    return assemble(np.array(ts, np.int64), ids, ids, columns, schema)


FEW_TIMES = st.integers(-2, 2)


@st.composite
def batches(draw, times=FEW_TIMES):
    types = draw(st.lists(st.sampled_from(list(TYPES)), max_size=3))
    row = st.tuples(times, *(st.none() | TYPES[type_] for type_ in types))
    rows = draw(st.lists(row, max_size=25))
    return batch_of([r[0] for r in rows], [r[1:] for r in rows], types)


def key(value):
    """nulls first, NaN greatest, -0.0 = 0.0, strings by their bytes"""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value)
    return (1, value.encode() if isinstance(value, str) else value)


def expected_order(batch):
    ts, rows = timestamps(batch).tolist(), batch.to_pylist()
    names = batch.schema.names[3:]
    return sorted(range(len(ts)), key=lambda i: (ts[i], [key(rows[i][name]) for name in names]))


@settings(max_examples=200, deadline=None)
@given(batches())
def test_it_is_the_order_of_the_definition(batch):
    assert canonical_order(batch).tolist() == expected_order(batch)


@settings(deadline=None)
@given(batches(), st.integers(0, 5), st.integers(0, 20))
def test_a_slice_sorts_as_its_rows(batch, start, length):
    piece = batch.slice(start, length)
    assert canonical_order(piece).tolist() == expected_order(piece)


@settings(deadline=None)
@given(batches(), st.randoms(use_true_random=False))
def test_equal_streams_sort_equally_whatever_their_order(batch, chance):
    shuffled = batch.take(pa.array(chance.sample(range(batch.num_rows), batch.num_rows), pa.int64()))
    content = batch.schema.names[3:]
    first, second = sort(batch), sort(shuffled)
    assert timestamps(first).tolist() == timestamps(second).tolist()
    for name in content:
        left, right = first.column(name).to_pylist(), second.column(name).to_pylist()
        assert [key(value) for value in left] == [key(value) for value in right]


def test_a_sorted_batch_is_returned_itself():
    rows = batch_of([1, 2, 2], [("z",), ("a",), ("b",)], [pa.string()])
    assert sort(rows) is rows
    for short in (rows.slice(0, 0), rows.slice(0, 1)):
        assert sort(short) is short


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_sorter_releases_each_row_once_behind_the_punctuation_and_in_order(data):
    batch = data.draw(batches(times=st.integers(0, 12)))
    sorter, released, last, start = Sorter(), [], BEGINNING, 0
    while start < batch.num_rows:
        size = data.draw(st.integers(0, 4))
        piece = batch.slice(start, size)
        start += size
        sorter.add(piece.filter(pa.array(timestamps(piece) > last)))
        last = max(last, data.draw(st.integers(-1, 12)))
        before = len(sorter)
        rows = sorter.release(last)
        left = sorter.rows()
        assert len(sorter) == (0 if left is None else left.num_rows)
        assert before == len(sorter) + (0 if rows is None else rows.num_rows)
        assert left is None or (timestamps(left) > last).all()
        if rows is not None:
            assert rows.num_rows
            assert timestamps(rows).max() <= last
            released.append(rows)
    rest = sorter.release(END)
    whole = pa.concat_batches(released + ([rest] if rest else [])) if released or rest else batch.slice(0, 0)
    assert sort(whole) is whole
    assert sorter.release(END) is None
    assert sorter.rows() is None


def test_rows_that_wait_are_given_in_order_of_arrival():
    sorter = Sorter()
    for ts in ([9, 1], [3], [7, 2]):
        sorter.add(batch_of(ts, [()] * len(ts), []))
    sorter.release(2)
    assert timestamps(sorter.rows()).tolist() == [9, 3, 7]


def test_equal_rows_are_released_in_order_of_arrival():
    sorter = Sorter()
    for first_id, ts in ((0, [9, 8]), (10, [9, 3]), (20, [9, 5])):
        sorter.add(batch_of(ts, [()] * 2, [], first_id))
    assert sorter.release(9).column("_hi").to_pylist() == [11, 21, 1, 0, 10, 20]


@pytest.mark.parametrize("rows", [1, 5000])
def test_many_equal_timestamps(rows):
    rng = np.random.default_rng(1)
    values = [(str(v),) for v in rng.integers(0, 50, rows)]
    batch = batch_of([5] * rows, values, [pa.string()])
    assert canonical_order(batch).tolist() == expected_order(batch)
