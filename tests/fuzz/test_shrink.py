"""Shrinking: down to the cause and no further, within the laws, within its number of runs."""

from collections.abc import Callable

import msgspec
import pytest

from anabranch.fuzz.case import Case, to_json
from anabranch.fuzz.draw import draw
from anabranch.fuzz.laws import lawful, plans
from anabranch.fuzz.shrink import shrink
from anabranch.graph import Join
from anabranch.plan import check_plan
from anabranch.sim.faults import Crash, Replan

Fails = Callable[[Case], bool]


def large(wanted: Fails) -> Case:
    cases = (draw(5, index) for index in range(500))
    return next(c for c in cases if len(c.graph.operators) >= 4 and len(c.faults) >= 4 and wanted(c))


def a_join_of_nulls(case: Case) -> bool:
    """Stands for a bug: a join somewhere, and a null in some input."""
    joins = any(isinstance(operator, Join) for operator in case.graph.operators)
    return joins and any(column.null_count for table in case.inputs.values() for column in table.columns)


def a_crash_of_a_replica(case: Case) -> bool:
    at = [site for sites in case.plan.replicas.values() for site in sites]
    return any(isinstance(fault, Crash) and fault.site in at for fault in case.faults)


def a_second_plan(case: Case) -> bool:
    return any(
        isinstance(fault, Replan) and fault.plan.replicas != case.plan.replicas for fault in case.faults
    )


def test_what_does_not_matter_goes() -> None:
    case = shrink(large(a_join_of_nulls), a_join_of_nulls, runs=1000)
    assert [type(operator) for operator in case.graph.operators] == [Join]
    assert case.faults == ()
    assert sum(table.num_rows for table in case.inputs.values()) == 1
    assert len(case.plan.subscriptions) == len(case.graph.outputs) == 1
    assert all(len(sites) == 1 for sites in (*case.plan.replicas.values(), *case.plan.entries.values()))
    assert case.settings == {}


def test_what_matters_stays() -> None:
    case = shrink(large(a_crash_of_a_replica), a_crash_of_a_replica, runs=1000)
    assert [type(fault) for fault in case.faults] == [Crash]
    assert case.faults[0].keep_log
    assert case.faults[0].at == round(case.faults[0].at)
    assert a_crash_of_a_replica(case)
    assert all(table.num_rows == 0 for table in case.inputs.values())


@pytest.mark.parametrize("fails", [a_join_of_nulls, a_crash_of_a_replica, a_second_plan])
def test_every_step_is_a_sound_case(fails: Fails) -> None:
    tried: list[Case] = []

    def watched(case: Case) -> bool:
        tried.append(case)
        return fails(case)

    first = large(fails)
    assert fails(shrink(first, watched))
    for case in tried:
        assert case.klass == first.klass
        assert lawful(case)
        case.graph.validate()
        assert list(case.inputs) == [source.name for source in case.graph.sources]
        for plan in plans(case):
            check_plan(plan, case.graph, case.topology)


def test_the_number_of_runs_is_bounded() -> None:
    tried = []

    def never(case: Case) -> bool:
        tried.append(case)
        return False

    case = large(a_join_of_nulls)
    assert to_json(shrink(case, never, runs=7)) == to_json(case)
    assert len(tried) == 7


def test_a_lifeline_is_never_shrunk_away() -> None:
    case = shrink(large(lambda case: case.klass == "live"), lambda case: True, runs=1000)
    unsafe = msgspec.structs.replace(case.plan, branches=case.plan.branches[1:])
    assert len(case.plan.branches) == len(set(case.plan.branches)) <= 4
    assert lawful(case)
    assert not lawful(msgspec.structs.replace(case, plan=unsafe))
