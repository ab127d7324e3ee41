"""Comparing branches: what is whole on both and differs is told once, and nothing else is."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.streams.agreement import BUCKET, ROOM, Agreement
from anabranch.streams.punctuation import BEGINNING, END

TUPLES = st.lists(
    st.tuples(st.integers(-3 * BUCKET, 9 * BUCKET), st.integers(0, 5)), max_size=30, unique=True
)


def columns(tuples):
    """Tuples as (timestamp, id)."""
    lists = [t for t, _ in tuples], [7] * len(tuples), [n for _, n in tuples]
    return tuple(np.array(column, np.int64) for column in lists)


def read(agreement, branch, tuples, promise=END, high=BEGINNING, complete_from=BEGINNING):
    return agreement.record(branch, high, complete_from, columns(tuples) if tuples else None, promise)


def ranges(dissents):
    return [(after, until) for _, after, until in dissents]


def test_branches_that_carry_the_same_agree_in_whatever_order_and_pieces():
    tuples = [(10, 1), (20, 2), (BUCKET, 3)]
    agreement = Agreement()
    for branch, order in enumerate(permutations(tuples)):
        for row in order:
            assert read(agreement, str(branch), [row], BEGINNING) == []
        assert read(agreement, str(branch), []) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([(10, 1), (20, 2)], [(10, 1)]),
        ([(10, 1)], []),
        ([(10, 1)], [(10, 2)]),
        ([(10, 1), (20, 2)], [(10, 1), (20, 3)]),
        ([(10, 1), (20, 2)], [(10, 2), (20, 1), (30, 2)]),
        ([(10, 1)], [(10, 1), (10, 1)]),
    ],
)
def test_a_difference_names_the_pair_and_the_bucket_once(one, other):
    agreement = Agreement()
    assert read(agreement, "oslo", [*one, (BUCKET + 1, 9)]) == []
    assert read(agreement, "bonn", [*other, (BUCKET + 1, 9)]) == [(("bonn", "oslo"), 0, BUCKET)]
    assert read(agreement, "oslo", []) == []


def test_each_pair_is_compared():
    agreement = Agreement()
    read(agreement, "a", [(10, 1)])
    read(agreement, "b", [(10, 1)])
    assert read(agreement, "c", []) == [(("a", "c"), 0, BUCKET), (("b", "c"), 0, BUCKET)]


def test_a_bucket_reaches_from_behind_its_beginning_to_its_end():
    agreement = Agreement()
    read(agreement, "a", [(0, 1), (BUCKET, 2)])
    assert ranges(read(agreement, "b", [])) == [(-BUCKET, 0), (0, BUCKET)]


def test_nothing_is_said_before_both_have_promised():
    agreement = Agreement()
    assert read(agreement, "a", [(10, 1)], 2 * BUCKET) == []
    assert read(agreement, "b", [(BUCKET + 5, 2)], BUCKET - 1) == []
    assert ranges(read(agreement, "b", [], BUCKET)) == [(0, BUCKET)]
    assert ranges(read(agreement, "b", [], 2 * BUCKET)) == [(BUCKET, 2 * BUCKET)]


@pytest.mark.parametrize("lacks", [{"high": 1}, {"complete_from": 1}, {"complete_from": END}])
def test_what_a_branch_does_not_have_in_full_is_not_compared(lacks):
    agreement = Agreement()
    read(agreement, "a", [(10, 1), (BUCKET + 10, 2)], 2 * BUCKET)
    expected = [] if END in lacks.values() else [(BUCKET, 2 * BUCKET)]
    assert ranges(read(agreement, "b", [], 2 * BUCKET, **lacks)) == expected


def test_a_branch_that_starts_over_is_read_anew():
    agreement = Agreement()
    read(agreement, "a", [(10, 1), (BUCKET + 10, 2)], END)
    read(agreement, "b", [(10, 1)], BEGINNING)
    agreement.start_over("b")
    assert read(agreement, "b", [(BUCKET + 10, 2)], 2 * BUCKET, high=10) == []
    agreement.start_over("b")
    assert read(agreement, "b", [(10, 1), (BUCKET + 10, 2)], 2 * BUCKET) == []


def test_a_branch_that_starts_over_is_not_compared_twice():
    agreement = Agreement()
    read(agreement, "a", [(10, 1)])
    assert ranges(read(agreement, "b", [])) == [(0, BUCKET)]
    agreement.start_over("b")
    assert read(agreement, "b", []) == []


def test_a_branch_far_ahead_is_not_compared_where_its_memory_ends():
    agreement = Agreement()
    read(agreement, "a", [(k * BUCKET + 1, k) for k in range(ROOM + 3)])
    assert ranges(read(agreement, "b", [(k * BUCKET + 1, k) for k in range(3, ROOM + 2)])) == [
        ((ROOM + 2) * BUCKET, (ROOM + 3) * BUCKET)
    ]


@example([(0, 0)], set(), 0, [1])
@given(TUPLES, st.sets(st.integers(0, 29)), st.integers(-3 * BUCKET, 9 * BUCKET), st.lists(st.integers(1, 9)))
def test_it_tells_exactly_the_whole_buckets_that_lack_something(tuples, dropped, high, sizes):
    """Of one branch everything, of the other what follows ``high`` without the dropped, in pieces."""
    rest = [row for row in tuples if row[0] > high]
    kept = [row for n, row in enumerate(rest) if n not in dropped]
    lost = [ts for n, (ts, _) in enumerate(rest) if n in dropped]
    agreement = Agreement()
    read(agreement, "a", tuples)
    found = []
    for piece in np.array_split(np.arange(len(kept)), max(1, len(sizes))):
        found += read(agreement, "b", [kept[i] for i in piece], BEGINNING, high)
    found += read(agreement, "b", [], END, high)
    whole = {(ts - 1) // BUCKET for ts in lost if (ts - 1) // BUCKET * BUCKET >= high}
    assert ranges(found) == [(k * BUCKET, (k + 1) * BUCKET) for k in sorted(whole)]
