"""The pool: every task is answered for, whatever becomes of the process that had it."""

import pytest

from anabranch.fuzz.pool import Lost, in_processes

DIES = "__import__('os')._exit(9)"
HANGS = "__import__('time').sleep(60)"


@pytest.mark.parametrize("workers", [1, 2])
def test_every_task_comes_back_once(workers: int) -> None:
    tasks = ["1 + 1", "2 + 2", "3 + 3", "4 + 4"]
    results = list(in_processes(eval, tasks, workers, limit=60))
    assert sorted(results) == [("1 + 1", 2), ("2 + 2", 4), ("3 + 3", 6), ("4 + 4", 8)]


def test_a_death_costs_one_task_and_is_named() -> None:
    results = dict(in_processes(eval, ["1 + 1", DIES, "2 + 2", "3 + 3"], 1, limit=60))
    lost = results.pop(DIES)
    assert results == {"1 + 1": 2, "2 + 2": 4, "3 + 3": 6}
    assert lost == Lost("the process died (exit status 9)")


def test_a_task_that_takes_too_long_is_stopped() -> None:
    results = dict(in_processes(eval, [HANGS, "1 + 1"], 1, limit=0.5))
    assert results == {HANGS: Lost("the run took longer than 0.5 s"), "1 + 1": 2}
