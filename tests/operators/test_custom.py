"""Custom: the ways in which user code goes wrong, and that nobody else suffers."""

import importlib.util
import sys
from pathlib import Path

import pytest

from anabranch.graph import Column, Custom, QueryError

Y = (Column("y", "bigint"),)


@pytest.fixture(autouse=True)
def user_code():
    spec = importlib.util.spec_from_file_location("user_code", Path(__file__).parent / "user_code.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["user_code"] = module
    yield
    del sys.modules["user_code"]


def custom(name, **window):
    return Custom("op", "a", f"user_code:{name}", Y, **window)


def ys(batch):
    return [] if batch is None else batch.column("y").to_pylist()


def test_what_cannot_be_loaded_is_named(start):
    with pytest.raises(QueryError, match="operator 'op': cannot load 'user_code:absent'"):
        start(custom("absent"))
    with pytest.raises(
        QueryError, match=r"cannot load 'no_such_module:f' .* install the module on every site"
    ):
        start(Custom("op", "a", "no_such_module:f", Y))
    with pytest.raises(QueryError, match="has no method 'final'"):
        start(custom("NoFinal", window=10))


def test_one_row_that_does_not_fit_its_column_is_poison_and_the_others_pass(start, rows):
    kernel = start(custom("not_a_number"))
    out = kernel.process(0, rows((1, "7", 0), (2, "seven", 0), (3, None, 0)))
    assert ys(out) == [7, 1]
    (poison,) = kernel.take_events()
    assert (poison.operator, poison.ts, poison.hi, poison.lo) == ("op", 2, 0, 1)
    assert "seven" in poison.error
    assert kernel.take_events() == []


def test_a_wrong_number_of_rows_needs_to_say_where_they_come_from(start, rows):
    kernel = start(custom("too_few"))
    assert kernel.process(0, rows((1, "x", 0))) is None
    assert "made 0 rows of 1; add a column '_row'" in kernel.take_events()[0].error


def test_a_row_from_nowhere_is_poison(start, rows):
    kernel = start(custom("outside"))
    assert kernel.process(0, rows((1, "x", 0))) is None
    assert "names a row outside 0..0" in kernel.take_events()[0].error


def test_no_rows_are_no_poison(start, rows):
    kernel = start(custom("nothing"))
    assert kernel.process(0, rows((1, "x", 0), (2, "x", 0))) is None
    assert kernel.take_events() == []


def test_ordinals_count_within_the_input_row_in_whatever_order_they_come(start, rows):
    batch = rows((1, "x", 0), (2, "x", 0))
    out = start(custom("backwards")).process(0, batch)
    alone = start(custom("backwards"))
    singles = [alone.process(0, batch.slice(i, 1)) for i in range(2)]
    ids = {
        (hi, lo)
        for single in singles
        for hi, lo in zip(single.column(1).to_pylist(), single.column(2).to_pylist(), strict=True)
    }
    assert {*zip(out.column(1).to_pylist(), out.column(2).to_pylist(), strict=True)} == ids
    assert len(ids) == 4


def test_a_window_whose_result_does_not_fit_is_poison_itself(start, rows):
    kernel = start(custom("WrongType", window=10, by=("g",)))
    kernel.process(0, rows((1, "x", 4), (2, "x", 6), (3, "y", 4)))
    out = kernel.punctuate(0, 10)
    assert ys(out) == [4]
    (poison,) = kernel.take_events()
    assert poison.ts == 10


def test_without_every_windows_follow_one_another(start, rows):
    kernel = start(custom("WrongType", window=10))
    kernel.process(0, rows((1, "x", 1), (11, "x", 2), (9, "x", 3)))
    assert ys(kernel.punctuate(0, 20)) == [4, 2]


def test_a_row_that_cannot_be_lifted_is_reported_once_for_all_its_windows(start, rows):
    kernel = start(custom("NoSevens", window=10, every=5))
    kernel.process(0, rows((3, "x", 7), (4, "x", 1)))
    assert ys(kernel.punctuate(0, 5)) == [1]
    assert [poison.ts for poison in kernel.take_events()] == [3]
    assert ys(kernel.punctuate(0, 10)) == [1]
    assert kernel.take_events() == []
