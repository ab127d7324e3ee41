"""The laws of punctuation where branches rejoin."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.streams.punctuation import BEGINNING, END, Frontier

BRANCHES = ["a", "b", "c"]

Words = list[tuple[str, int, int]]
words = st.lists(
    st.tuples(st.sampled_from(BRANCHES), st.integers(0, 20), st.integers(0, 40)),
    max_size=30,
)


def model(start: int, said: Words) -> int:
    """The law, written as slowly as possible: whoever may speak raises the punctuation, until nobody can."""
    promises: dict[str, tuple[int, int]] = {}
    punctuation = start
    for branch, complete_from, promise in said:
        promises[branch] = (complete_from, promise)
        changed = True
        while changed:
            changed = False
            for c, p in promises.values():
                if c <= punctuation < p:
                    punctuation, changed = p, True
    return punctuation


@given(st.integers(0, 20), words)
def test_it_is_the_maximum_over_the_branches_that_may_speak(
    start: int, said: list[tuple[str, int, int]]
) -> None:
    frontier = Frontier()
    frontier.settle(start)
    before = frontier.punctuation
    for branch, complete_from, promise in said:
        moved = frontier.hear(branch, complete_from, promise)
        assert moved == (frontier.punctuation > before)
        assert frontier.punctuation >= before
        before = frontier.punctuation
    assert frontier.punctuation == model(start, said)


@given(words)
def test_an_unsettled_stream_promises_nothing_and_keeps_every_promise(
    said: list[tuple[str, int, int]],
) -> None:
    frontier = Frontier()
    for branch, complete_from, promise in said:
        assert not frontier.hear(branch, complete_from, promise)
    assert frontier.punctuation == BEGINNING
    least = frontier.least_known()
    assert least == min((c for c, _ in {b: (c, p) for b, c, p in said}.values()), default=END)
    if said:
        frontier.settle(least)
        last = list({b: (b, c, p) for b, c, p in said}.values())
        assert frontier.punctuation == model(least, last)


def test_a_branch_that_left_speaks_no_more() -> None:
    frontier = Frontier()
    frontier.settle(0)
    frontier.hear("late", 10, 50)
    frontier.forget("late")
    frontier.hear("early", 0, 20)
    assert frontier.punctuation == 20


def test_who_waits_is_known() -> None:
    frontier = Frontier()
    frontier.settle(0)
    frontier.hear("a", 30, 60)
    frontier.hear("b", 20, 60)
    frontier.hear("c", 5, 5)
    assert frontier.least_waiting() == 5
    frontier.forget("c")
    assert frontier.least_waiting() == 20
    assert frontier.first_complete(["a", "b"]) == 20
    assert frontier.first_complete(["a", "d"]) is None
