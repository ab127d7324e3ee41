"""Algorithm 1 by content, against the paper's lines written out with dicts."""

from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.streams.hashing import content_ids
from anabranch.streams.occurrences import ContentFilter, Occurrences
from anabranch.streams.punctuation import BEGINNING, END


class Algorithm1:
    """replication-wan.txt, Algorithm 1; a tuple is (timestamp, values...)."""

    def __init__(self):
        self.max_punctuation = BEGINNING
        self.count = defaultdict(Counter)
        self.max_count = Counter()

    def tuple_arrives(self, t, i):
        if t[0] > self.max_punctuation:  # line 2
            self.count[t][i] += 1  # line 3
            if self.count[t][i] > self.max_count[t]:  # line 4
                self.max_count[t] = self.count[t][i]  # line 6
                return True  # line 5
        return False

    def punctuation_arrives(self, p):
        if p > self.max_punctuation:  # line 8
            self.max_punctuation = p  # line 10
            for t in [t for t in self.count if t[0] <= p]:  # line 11
                del self.count[t], self.max_count[t]


def columns(rows):
    ts, hosts, loads = zip(*rows, strict=True) if rows else ((), (), ())
    return np.array(ts, np.int64), [pa.array(hosts, pa.string()), pa.array(loads, pa.float64())]


TUPLES = st.tuples(st.integers(0, 6), st.sampled_from([None, "", "a"]), st.sampled_from([None, 0.5, 1.5]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("tuples"), st.integers(0, 2), st.lists(TUPLES, max_size=12)),
        st.tuples(st.just("punctuation"), st.integers(0, 7), st.none()),
    ),
    max_size=25,
)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_it_is_algorithm_1(steps):
    rejoin, paper = ContentFilter("s", 3), Algorithm1()
    for step, at, rows in steps:
        if step == "tuples":
            expected = [paper.tuple_arrives(t, at) for t in rows]
            new, _, _ = rejoin.accept(at, *columns(rows))
            assert rejoin.fresh.tolist() == expected
            assert new == sum(expected)
        else:
            paper.punctuation_arrives(at)
            rejoin.punctuate(at)
        assert rejoin.live == sum(paper.max_count.values())


@settings(max_examples=100, deadline=None)
@given(st.lists(TUPLES, max_size=20), st.randoms(use_true_random=False), st.data())
def test_consistent_branches_give_the_stream_once(stream, chance, data):
    """Theorem 1: whatever the orders and the interleaving, each tuple passes as often as one branch has
    it, and no two tuples of a branch share an id."""
    rejoin, passed, ids = ContentFilter("s", 3), Counter(), [set() for _ in range(3)]
    waiting = [chance.sample(stream, len(stream)) for _ in range(3)]
    while any(waiting):
        branch = data.draw(st.sampled_from([b for b in range(3) if waiting[b]]))
        size = data.draw(st.integers(1, len(waiting[branch])))
        rows, waiting[branch] = waiting[branch][:size], waiting[branch][size:]
        _, hi, lo = rejoin.accept(branch, *columns(rows))
        passed.update(t for t, fresh in zip(rows, rejoin.fresh, strict=True) if fresh)
        ids[branch].update(zip(rows, hi.tolist(), lo.tolist(), strict=True))
        rejoin.punctuate(min((t[0] for t in waiting[branch]), default=END) - 1)
    assert passed == Counter(stream)
    assert len({i[1:] for i in ids[0]}) == len(ids[0]) <= len(stream)


def test_the_jth_arrival_of_a_content_has_the_jth_id():
    seen = Occurrences("s")
    ts, values = columns([(5, "a", 0.5), (5, "b", 0.5), (5, "a", 0.5)])
    ids = seen.ids(ts, values)
    expected = content_ids("s", ts, values, np.array([1, 1, 2]))
    assert [part.tolist() for part in ids] == [part.tolist() for part in expected]
    again = seen.ids(ts[:1], [column.slice(0, 1) for column in values])
    assert again[0][0] == content_ids("s", ts[:1], [c.slice(0, 1) for c in values], np.array([3]))[0][0]


def test_a_content_may_occur_a_thousand_times():
    seen = Occurrences("s")
    hi, lo = seen.ids(np.full(1000, 5), [pa.array(["a"] * 1000)])
    assert len(set(zip(hi.tolist(), lo.tolist(), strict=True))) == 1000


def test_numbering_goes_on_after_a_crash():
    rows = [(5, "a", 0.5), (9, "a", 0.5), (9, "a", 0.5), (9, None, None)]
    seen = Occurrences("s")
    seen.ids(*columns(rows))
    seen.punctuate(5)
    reborn = Occurrences("s")
    reborn.restore(5, *columns(rows))
    assert reborn.live == seen.live == 2
    following = columns([(9, "a", 0.5), (9, None, None), (10, "a", 0.5)])
    assert [p.tolist() for p in reborn.ids(*following)] == [p.tolist() for p in seen.ids(*following)]


def test_a_restored_filter_passes_nothing_twice():
    rows = [(4, "a", 0.5), (9, "a", 0.5), (9, "a", 0.5)]
    rejoin = ContentFilter("s", 2)
    rejoin.restore(5, *columns(rows))
    assert rejoin.punctuation == 5
    assert rejoin.accept(0, *columns([*rows, (9, "a", 0.5)]))[0] == 1
    assert rejoin.fresh.tolist() == [False, False, False, True]
    assert rejoin.accept(1, *columns([*rows, (9, "a", 0.5)]))[0] == 0


def test_a_branch_added_later_counts_from_one():
    rejoin = ContentFilter("s", 1)
    rejoin.accept(0, *columns([(9, "a", 0.5)]))
    rejoin.punctuate(3)
    assert rejoin.add_branch() == 1
    rows = columns([(2, "a", 0.5), (9, "a", 0.5), (9, "a", 0.5)])
    new, *ids = rejoin.accept(1, *rows)
    assert new == 1
    expected = content_ids("s", *rows, np.array([0, 1, 2]))
    assert [part.tolist() for part in ids] == [part.tolist() for part in expected]
    assert rejoin.ranks.tolist() == [[1, 0, 0], [1, 1, 1]]


def test_memory_is_bounded_by_what_lives():
    rejoin, largest = ContentFilter("s", 2), 0
    for now in range(0, 20_000, 20):
        rows = columns([(now + i, "a", 0.5) for i in range(20)])
        rejoin.accept(0, *rows)
        rejoin.accept(1, *rows)
        rejoin.punctuate(now - 20)
        largest = max(largest, rejoin.nbytes)
    assert largest < 100_000


def test_an_unknown_branch_is_refused():
    with pytest.raises(IndexError, match="has 2, numbered from 0"):
        ContentFilter("s", 2).accept(2, *columns([(1, "a", 0.5)]))
