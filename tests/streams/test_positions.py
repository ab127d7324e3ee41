"""The position index, against a list of all records."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.streams.positions import PositionIndex
from anabranch.streams.punctuation import BEGINNING, END


class Model:
    """Every record there ever was: [position, largest timestamp]."""

    def __init__(self):
        self.records, self.first, self.end = [], 0, 0

    def high(self, position):
        return max((ts for at, ts in self.records if at < position), default=BEGINNING)

    def complete_from(self, c):
        fitting = [p for p in range(self.first, self.end + 1) if self.high(p) <= c]
        return max(fitting, default=self.first)

    def trim_before(self, ts):
        last = max((at for at, _ in self.records), default=self.first)
        return max(self.first, min(self.complete_from(ts), last))


TIMES = st.integers(0, 12) | st.just(BEGINNING)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), TIMES),
        st.tuples(st.just("append"), TIMES),
        st.tuples(st.just("trim"), st.integers(-1, 13)),
        st.tuples(st.just("trimmed"), st.integers(0, 15)),
        st.tuples(st.just("truncate"), st.integers(0, 3)),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_it_is_the_index_of_the_definition(steps):
    log, model = PositionIndex(), Model()
    for step, value in steps:
        if step == "append":
            log.append(model.end, value)
            model.records.append((model.end, value))
            model.end += 1
        elif step in ("trim", "trimmed"):
            position = model.trim_before(value) if step == "trim" else min(value, model.end)
            log.trimmed(position)
            model.first = max(model.first, position)
        else:
            model.end = max(model.first, model.end - value)
            log.truncate(model.end)
            model.records = [record for record in model.records if record[0] < model.end]
        assert (log.first, log.end) == (model.first, model.end)
        for position in range(model.first, model.end + 1):
            assert log.high(position) == model.high(position)
        for ts in (*range(-1, 14), BEGINNING, END):
            assert log.complete_from(ts) == model.complete_from(ts)
            assert log.trim_before(ts) == model.trim_before(ts)


@settings(deadline=None)
@given(st.lists(st.integers(0, 20), max_size=30), st.integers(-1, 21))
def test_a_branch_misses_nothing_from_where_it_is_complete(stamps, c):
    log = PositionIndex()
    for position, ts in enumerate(stamps):
        log.append(position, ts)
    start = log.complete_from(c)
    assert all(ts <= c for ts in stamps[:start])
    assert start == len(stamps) or stamps[start] > c


def test_an_index_is_short_where_timestamps_do_not_rise():
    log = PositionIndex()
    for position in range(10_000):
        log.append(position, 5)
    assert len(log._positions) == 1


def test_trimming_forgets():
    log = PositionIndex()
    for position in range(1000):
        log.append(position, position)
        log.trimmed(log.trim_before(position - 10))
    assert len(log._positions) <= 12
    assert log.high(log.first) == log.first - 1


def test_a_log_that_begins_trimmed():
    log = PositionIndex(first=7, high=100)
    assert (log.high(7), log.complete_from(50), log.complete_from(100)) == (100, 7, 7)
    log.append(7, 90)
    assert (log.complete_from(100), log.complete_from(99)) == (8, 7)


def test_a_log_that_came_back_shorter_than_what_was_trimmed():
    log = PositionIndex()
    for position in range(10):
        log.append(position, position)
    log.trimmed(8)
    log.truncate(5)
    assert (log.first, log.end, log.high(5)) == (5, 5, 7)
    log.append(5, 20)
    assert log.complete_from(7) == 5


def test_positions_must_increase():
    log = PositionIndex()
    log.append(3, 10)
    with pytest.raises(ValueError, match="position 3 is not behind the end of the log, 4"):
        log.append(3, 11)
