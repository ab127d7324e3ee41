"""Time windows: what closes when, and what is let go."""

import pytest

from anabranch.graph import Aggregate
from anabranch.streams.punctuation import BEGINNING, END


def count(window, every):
    return Aggregate("op", "a", window, every, (), (("n", "count(*)"),))


def found(batch):
    return [] if batch is None else sorted((r["_ts"].value, r["n"]) for r in _rows(batch))


def _rows(batch):
    return [{"_ts": ts, "n": n.as_py()} for ts, n in zip(batch.column("_ts"), batch.column("n"), strict=True)]


def test_a_window_holds_its_start_and_not_its_end(start, rows):
    kernel = start(count(10, 10))
    kernel.process(0, rows((0, "x", 1), (9, "x", 1), (10, "x", 1), (-1, "x", 1)))
    assert found(kernel.punctuate(0, 20)) == [(0, 1), (10, 2), (20, 1)]


def test_a_window_closes_at_its_end_and_not_before(start, rows):
    kernel = start(count(10, 10))
    kernel.process(0, rows((3, "x", 1)))
    assert kernel.punctuate(0, 9) is None
    assert kernel.punctuation == 9
    assert found(kernel.punctuate(0, 10)) == [(10, 1)]
    assert kernel.punctuate(0, END) is None


def test_windows_need_not_be_multiples_of_the_slide(start, rows):
    kernel = start(count(7, 3))
    kernel.process(0, rows((5, "x", 1)))
    assert found(kernel.punctuate(0, END)) == [(6, 1), (9, 1), (12, 1)]


def test_tuples_in_gaps_belong_to_no_window(start, rows):
    kernel = start(count(2, 10))
    kernel.process(0, rows((7, "x", 1), (8, "x", 1), (-3, "x", 1), (-2, "x", 1)))
    assert found(kernel.punctuate(0, END)) == [(0, 1), (10, 1)]


def test_a_jump_over_an_age_of_empty_windows_takes_no_time(start, rows):
    kernel = start(count(1, 1))
    kernel.process(0, rows((-(10**15), "x", 1), (10**15, "x", 1)))
    assert found(kernel.punctuate(0, END)) == [(-(10**15) + 1, 1), (10**15 + 1, 1)]


def test_rows_whose_windows_are_closed_are_let_go(start, rows):
    kernel = start(count(10, 5))
    empty = len(kernel.snapshot())
    for ts in range(0, 1000, 2):
        kernel.process(0, rows((ts, "x", 1)))
        kernel.punctuate(0, ts - 1)
    assert len(kernel.snapshot()) < empty + 1000
    kernel.punctuate(0, END)
    assert kernel._kept is None
    assert not kernel._fresh


def test_a_window_that_began_before_its_input_was_complete_is_never_emitted(start, rows):
    kernel = start(count(10, 5), complete_from=3)
    assert kernel.start((3,)) == 13
    kernel.process(0, rows((1, "x", 1), (4, "x", 1), (6, "x", 1)))
    # [5, 15) is the first window behind 3.
    assert found(kernel.punctuate(0, END)) == [(15, 1)]


def test_a_window_that_began_where_its_input_became_complete_may_lack_its_first_tuple(start, rows):
    kernel = start(count(10, 5), complete_from=5)
    kernel.process(0, rows((7, "x", 1)))
    assert found(kernel.punctuate(0, END)) == []


def test_rows_of_windows_that_will_not_be_emitted_are_let_go(start, rows):
    kernel = start(count(10, 10), complete_from=95)
    kernel.process(0, rows((1, "x", 1), (50, "x", 1), (99, "x", 1)))
    kernel.punctuate(0, 110)
    assert kernel._kept is None


def test_behind_a_hole_windows_begin_anew(start, rows):
    kernel = start(count(10, 10))
    kernel.process(0, rows((1, "x", 1), (12, "x", 1)))
    assert found(kernel.punctuate(0, 10)) == [(10, 1)]
    assert kernel.start((25,)) == 35
    kernel.process(0, rows((26, "x", 1), (31, "x", 1)))
    assert found(kernel.punctuate(0, END)) == [(40, 1)]


@pytest.mark.parametrize(("given", "told"), [(BEGINNING, BEGINNING), (END, END), (0, 10)])
def test_the_infinities_absorb_the_window(start, given, told):
    assert start(count(10, 5), complete_from=None).start((given,)) == told


def test_while_completeness_is_unknown_nothing_is_emitted_or_lost(start, rows):
    kernel = start(count(10, 10), complete_from=END)
    kernel.process(0, rows((21, "x", 1), (12, "x", 1)))
    assert kernel.start((11,)) == 21
    assert found(kernel.punctuate(0, 30)) == [(30, 1)]
