"""The duplicate filter on lineage ids, against a filter of dicts."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.streams.duplicates import DuplicateFilter
from anabranch.streams.punctuation import BEGINNING, END


class Model:
    """What the filter means, in dicts."""

    def __init__(self, branches):
        self.branches, self.p, self.counts = branches, BEGINNING, Counter()
        self.ranks = [Counter() for _ in range(branches)]

    def accept(self, branch, rows):
        fresh = []
        for row in rows:
            if row[0] <= self.p:
                rank = self.branches
            else:
                rank = min(self.counts[row], self.branches)
                self.counts[row] += 1
            fresh.append(rank == 0)
            self.ranks[branch][rank] += 1
        return fresh

    def punctuate(self, p):
        self.p = max(self.p, p)

    def restore(self, p, rows):
        self.punctuate(p)
        for row in rows:
            if row[0] > self.p:
                self.counts[row] = max(self.counts[row], 1)

    @property
    def live(self):
        return sum(1 for row in self.counts if row[0] > self.p)


def columns(rows):
    array = np.array(rows, np.int64).reshape(-1, 3)
    return tuple(np.ascontiguousarray(array[:, i]) for i in range(3))


def agree(rejoin, model):
    assert rejoin.live == model.live
    table = [[counter[rank] for rank in range(model.branches + 1)] for counter in model.ranks]
    assert rejoin.ranks.tolist() == table


TIMES = st.one_of(
    st.integers(-20, 20),
    st.integers(BEGINNING + 1, END - 1),
    st.integers(0, 50).map(lambda hours: hours * 3_600_000_000),
)
ROWS = st.lists(st.tuples(TIMES, st.integers(-3, 3), st.integers(-3, 3)), max_size=30)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("accept"), st.integers(0, 7), ROWS),
        st.tuples(st.just("punctuate"), TIMES | st.just(END), st.none()),
        st.tuples(st.just("restore"), TIMES | st.just(BEGINNING), ROWS),
        st.tuples(st.just("add_branch"), st.none(), st.none()),
    ),
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 4), STEPS)
def test_it_is_the_filter_of_dicts(branches, steps):
    rejoin, model = DuplicateFilter(branches), Model(branches)
    for step, at, rows in steps:
        if step == "accept":
            branch = at % model.branches
            expected = model.accept(branch, rows)
            assert rejoin.accept(branch, *columns(rows)) == sum(expected)
            assert rejoin.fresh.tolist() == expected
        elif step == "punctuate":
            rejoin.punctuate(at)
            model.punctuate(at)
        elif step == "restore":
            rejoin.restore(at, *columns(rows))
            model.restore(at, rows)
        else:
            assert rejoin.add_branch() == model.branches
            model.branches += 1
            model.ranks.append(Counter())
        agree(rejoin, model)


@pytest.mark.parametrize("seed", range(6))
def test_large_batches_that_grow_sweep_and_shrink_the_table(seed):
    rng = np.random.default_rng(seed)
    rejoin, model = DuplicateFilter(3), Model(3)
    scale = 10 ** int(rng.integers(0, 9))
    for now in range(60):
        size = int(rng.choice([1, 3, 50, 2000]))
        ts = (now + rng.integers(-2, 12, size)) * scale
        his, los = rng.integers(0, 4, size), rng.integers(0, 40, size)
        rows = list(zip(ts.tolist(), his.tolist(), los.tolist(), strict=True))
        branch = int(rng.integers(3))
        expected = model.accept(branch, rows)
        assert rejoin.accept(branch, *columns(rows)) == sum(expected)
        assert rejoin.fresh.tolist() == expected
        if rng.random() < 0.5:
            rejoin.punctuate(now * scale)
            model.punctuate(now * scale)
        agree(rejoin, model)


def stream(rng, n, first=0, rate=1):
    """``n`` distinct tuples, ``rate`` a time unit."""
    return first + np.arange(n) // rate, rng.integers(-(2**63), 2**63 - 1, n), rng.integers(0, 2**62, n)


def test_memory_is_bounded_by_what_lives():
    rng = np.random.default_rng(1)
    rejoin, window, largest = DuplicateFilter(1), 2000, 0
    for first in range(0, 400_000, 100):
        rejoin.accept(0, *stream(rng, 100, first))
        rejoin.punctuate(first - window)
        largest = max(largest, rejoin.nbytes)
    assert largest < 400 * window
    assert window <= rejoin.live <= window + 100


def test_a_burst_is_forgotten_while_the_stream_trickles_on():
    rng = np.random.default_rng(1)
    rejoin = DuplicateFilter(1)
    small = rejoin.nbytes
    rejoin.accept(0, *stream(rng, 200_000, 1000, rate=2000))
    assert rejoin.nbytes > 200_000 * 32
    for now in range(1100, 1500):
        rejoin.accept(0, *stream(rng, 1, now))
        rejoin.punctuate(now - 5)
    assert rejoin.nbytes == small


@pytest.mark.parametrize("outlier", [END - 1, BEGINNING + 1])
def test_one_absurd_timestamp_does_not_keep_the_others_in_memory(outlier):
    rng = np.random.default_rng(1)
    rejoin = DuplicateFilter(1)
    rejoin.accept(0, np.array([outlier]), np.array([1]), np.array([1]))
    largest = 0
    for now in range(0, 100_000, 50):
        rejoin.accept(0, *stream(rng, 50, now))
        rejoin.punctuate(now - 100)
        largest = max(largest, rejoin.nbytes)
    assert largest < 100_000
    assert rejoin.accept(0, np.array([outlier]), np.array([1]), np.array([1])) == 0


def test_a_first_tuple_far_ahead_does_not_keep_a_burst_in_memory():
    rng = np.random.default_rng(1)
    rejoin = DuplicateFilter(1)
    small = rejoin.nbytes
    rejoin.accept(0, *(np.array([10**15]) for _ in range(3)))
    rejoin.accept(0, *stream(rng, 200_000, 1000, rate=2000))
    for now in range(1100, 1500):
        rejoin.accept(0, *stream(rng, 1, now))
        rejoin.punctuate(now - 5)
    assert rejoin.nbytes == small


def test_extreme_disorder_costs_no_more_memory_than_order():
    rng = np.random.default_rng(1)
    rejoin = DuplicateFilter(1)
    _, hi, lo = stream(rng, 10_000)
    rejoin.accept(0, rng.integers(BEGINNING + 1, END, 10_000), hi, lo)
    assert rejoin.nbytes < 2_000_000


def test_the_end_of_a_stream_empties_the_filter():
    rng = np.random.default_rng(1)
    rejoin = DuplicateFilter(2)
    rejoin.accept(0, *stream(rng, 5000))
    rejoin.punctuate(END)
    assert rejoin.live == 0
    assert rejoin.accept(1, *stream(rng, 10)) == 0


def test_a_tuple_delivered_a_thousand_times_is_new_once():
    rejoin = DuplicateFilter(300)
    one = tuple(np.array([5]) for _ in range(3))
    assert [rejoin.accept(i % 2, *one) for i in range(1000)] == [1] + [0] * 999
    assert rejoin.ranks[:, :300].sum() == 300
    assert rejoin.ranks[:, 300].sum() == 700


def test_weights_are_the_papers():
    rejoin = DuplicateFilter(3)
    one = tuple(np.array([5]) for _ in range(3))
    for branch in (2, 0, 1):
        rejoin.accept(branch, *one)
    assert rejoin.weights().tolist() == pytest.approx([1 / 2, 1 / 3, 1])


def test_what_comes_behind_the_punctuation_has_the_lowest_rank():
    rejoin = DuplicateFilter(2)
    rejoin.accept(0, *(np.array([5]) for _ in range(3)))
    rejoin.punctuate(5)
    assert rejoin.accept(1, *(np.array([5]) for _ in range(3))) == 0
    assert rejoin.ranks.tolist() == [[1, 0, 0], [0, 0, 1]]


def test_a_restored_tuple_counts_once_however_often_it_is_restored():
    rejoin = DuplicateFilter(3)
    rejoin.restore(4, *(np.array([4, 5, 5, 5]) for _ in range(3)))
    assert rejoin.accept(2, *(np.array([4, 5, 6]) for _ in range(3))) == 1
    assert rejoin.ranks[2].tolist() == [1, 1, 0, 1]


def test_a_punctuation_never_decreases():
    rejoin = DuplicateFilter(1)
    rejoin.punctuate(10)
    rejoin.punctuate(3)
    assert rejoin.punctuation == 10
    assert rejoin.accept(0, *(np.array([7]) for _ in range(3))) == 0


def test_an_unknown_branch_is_refused():
    for branch in (-1, 2):
        with pytest.raises(IndexError, match="has 2, numbered from 0"):
            DuplicateFilter(2).accept(branch, *(np.array([7]) for _ in range(3)))


def test_unequal_columns_are_refused():
    with pytest.raises(ValueError, match="of one length"):
        DuplicateFilter(1).accept(0, np.array([1, 2]), np.array([1, 2]), np.array([1]))
    with pytest.raises(ValueError, match="of one length"):
        DuplicateFilter(1).restore(0, np.array([1, 2]), np.array([1]), np.array([1, 2]))
