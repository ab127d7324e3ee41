"""Drawing: the same case from the same numbers, lawful in every class, and everything there is turns up."""

import os
import subprocess
import sys
from collections import Counter

import msgspec
import pytest

from anabranch.fuzz.case import Case, from_json, to_json
from anabranch.fuzz.draw import draw
from anabranch.fuzz.laws import lawful, loses_log, plans
from anabranch.graph import Aggregate, Custom, Join, Operator, TopK, Union
from anabranch.plan import Plan, check_plan
from anabranch.sim.faults import Crash, Cut, Fault, Replan

CASES = 250


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [draw(1, index) for index in range(CASES)]


def test_a_case_depends_on_seed_and_index_alone() -> None:
    script = (
        "import hashlib; from anabranch.fuzz.draw import draw; from anabranch.fuzz.case import to_json;"
        "print(hashlib.sha256(b''.join(to_json(draw(3, i)) for i in range(25))).hexdigest())"
    )
    digests = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for salt in ("1", "77")
    ]
    assert digests[0] == digests[1] != ""
    assert to_json(draw(3, 0)) != to_json(draw(4, 0)) != to_json(draw(4, 1))


def test_every_case_keeps_the_laws_of_its_class(cases: list[Case]) -> None:
    for case in cases:
        case.graph.validate()
        assert lawful(case), case.klass
        for plan in plans(case):
            check_plan(plan, case.graph, case.topology)


def test_every_case_survives_its_json_form(cases: list[Case]) -> None:
    for case in cases[:60]:
        written = to_json(case)
        again = from_json(written)
        assert to_json(again) == written
        assert (again.graph, again.topology, again.plan, again.faults) == (
            case.graph,
            case.topology,
            case.plan,
            case.faults,
        )
        for name, table in case.inputs.items():
            assert again.inputs[name].schema == table.schema


def test_every_class_fault_and_operator_turns_up(cases: list[Case]) -> None:
    assert {case.klass for case in cases} == {"calm", "live", "outage", "loss"}
    faults = {type(fault) for case in cases for fault in case.faults}
    assert faults == set(Fault.__args__)
    operators = {type(operator) for case in cases for operator in case.graph.operators}
    assert operators == set(Operator.__args__)


def test_the_ranges_that_are_promised_are_reached(cases: list[Case]) -> None:
    def seen(values: list[int]) -> tuple[int, int]:
        return min(values), max(values)

    assert seen([len(case.graph.sources) for case in cases]) == (1, 3)
    assert seen([len(case.graph.operators) for case in cases]) == (1, 8)
    assert seen([len(case.graph.outputs) for case in cases]) == (1, 3)
    assert seen([len(case.topology.sites) for case in cases]) == (1, 12)
    assert seen([len(sites) for case in cases for sites in case.plan.replicas.values()]) == (1, 4)
    assert seen([len(sites) for case in cases for sites in case.plan.entries.values()]) == (1, 3)
    assert seen([case.plan.mirrors for case in cases]) == (0, 2)
    assert seen([table.num_rows for case in cases for table in case.inputs.values()]) == (0, 60)


def test_the_kinds_of_query_that_find_bugs_are_among_them(cases: list[Case]) -> None:
    operators = [operator for case in cases for operator in case.graph.operators]
    inputs = [(case, operator) for case in cases for operator in case.graph.operators]
    assert any(isinstance(x, Aggregate) and x.every < x.window for x in operators)
    assert any(isinstance(x, Aggregate) and x.every > x.window for x in operators)
    assert any(isinstance(x, Aggregate) and len(x.by) == 2 for x in operators)
    assert any(isinstance(x, Join) and x.left == x.right for x in operators)
    assert any(isinstance(x, Custom) and x.window for x in operators)
    assert any(isinstance(x, TopK) and x.k == 3 for x in operators)
    assert any(
        isinstance(x, Union)
        and any(name.startswith("map") and case.graph.node(name).input in x.inputs for name in x.inputs)
        for case, x in inputs
    )
    assert any(len(case.graph.consumers(source.name)) > 1 for case in cases for source in case.graph.sources)
    assert any(output.order for case in cases for output in case.graph.outputs)
    assert any(len(case.plan.subscriptions) > len(case.graph.outputs) for case in cases)


def test_the_kinds_of_schedule_that_find_bugs_are_among_them(cases: list[Case]) -> None:
    count = Counter(
        (case.klass, loses_log(fault)) for case in cases for fault in case.faults if isinstance(fault, Crash)
    )
    assert min(count["live", True], count["live", False], count["outage", True], count["outage", False]) >= 5
    assert any(fault.until is None for case in cases for fault in case.faults if isinstance(fault, Crash))
    rivals = [
        Counter(fault.plan.epoch for fault in case.faults if isinstance(fault, Replan)) for case in cases
    ]
    assert any(max(epochs.values(), default=0) > 1 for epochs in rivals)
    assert any(len(epochs) == 3 for epochs in rivals)
    calm = [case for case in cases if case.klass == "calm"]
    assert any(len(case.topology.sites) == 1 for case in calm)


def test_the_laws_refuse_what_would_fail_for_a_good_reason(cases: list[Case]) -> None:
    plain = [x for x in cases if all(source.timestamps == "source" for source in x.graph.sources)]
    case = next(x for x in plain if x.klass == "live" and len(set(x.lifeline.values())) > 1)
    a, b = list(dict.fromkeys(case.lifeline.values()))[:2]
    begin = 10.0
    assert not lawful(_with(case, Crash(a, begin, begin + 1)))
    assert not lawful(_with(case, Cut(a, b, begin, begin + 1)))
    outage = msgspec.structs.replace(case, klass="outage")
    assert lawful(_with(outage, Crash(a, begin, begin + 1)))
    assert not lawful(_with(outage, Crash(a, begin)))
    assert not lawful(_with(outage, Crash(a, begin, begin + 2), Crash(a, begin + 1, begin + 3)))
    broken: Plan = msgspec.structs.replace(case.plan, branches=())
    assert not lawful(msgspec.structs.replace(case, faults=(), plan=broken))


def test_one_log_may_be_lost_within_an_outage_and_any_beyond(cases: list[Case]) -> None:
    """Of two sites either of which others could replace, not both."""
    for case in cases:
        outage = msgspec.structs.replace(case, klass="outage")
        entries = [site for sites in case.plan.entries.values() for site in sites]
        free = [site for site in case.topology.names if site not in entries]
        losses = [Crash(site, 10.0, 11.0, keep_log=False) for site in free]
        alone = [loss for loss in losses if lawful(_with(outage, loss))]
        if len(alone) > 1:
            assert not lawful(_with(outage, *alone[:2]))
            assert lawful(_with(msgspec.structs.replace(case, klass="loss"), *alone[:2]))
            return
    pytest.fail("no drawn case has two sites that others can replace")


def _with(case: Case, *faults: Fault) -> Case:
    return msgspec.structs.replace(case, faults=faults)
