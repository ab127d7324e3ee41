"""Every malformed file yields one sentence that names the file, the place and a remedy."""

import json
from pathlib import Path

import pytest

from anabranch.graph import Column, Filter, Graph, Output, Source
from anabranch.inputs import InputError, load_inputs
from anabranch.plan import Plan, PlanError, check_plan
from anabranch.sim.faults import FaultError, check_faults, load_faults
from anabranch.topology import Topology, TopologyError

HERE = Path(__file__).parent
GRAPH = Graph(
    "netwatch",
    (Source("load", (Column("host", "string"), Column("load", "double"))),),
    (Filter("busy", "load", "load > 0.5"),),
    (Output("alerts", "busy"),),
)
SITES = Topology.from_rtt([[0, 70, 90], [70, 0, 20], [90, 20, 0]], ["a", "b", "c"])


def read_plan(path):
    plan = Plan.load(path)
    try:
        check_plan(plan, GRAPH, SITES)
    except PlanError as error:
        raise PlanError(f"{path}: {error}") from None


def read_faults(path):
    faults = load_faults(path)
    try:
        check_faults(faults, GRAPH, SITES)
    except FaultError as error:
        raise FaultError(f"{path}: {error}") from None


READERS = {
    "topologies": (Topology.load, TopologyError),
    "plans": (read_plan, PlanError),
    "faults": (read_faults, FaultError),
    "data": (lambda path: load_inputs(GRAPH, {"load": path}), InputError),
}
EXPECTED = {kind: json.loads((HERE / kind / "expected.json").read_text("utf-8")) for kind in READERS}


@pytest.mark.parametrize(
    ("kind", "name"),
    [pytest.param(kind, name, id=f"{kind}/{name}") for kind, names in EXPECTED.items() for name in names],
)
def test_a_malformed_file_is_refused_with_a_sentence(kind, name):
    read, error = READERS[kind]
    path = HERE / kind / name
    with pytest.raises(error) as caught:
        read(path)
    message = str(caught.value)
    assert type(caught.value) is error
    assert EXPECTED[kind][name] in message
    assert message.startswith(str(path))
    assert "\n" not in message


def test_no_malformed_file_is_forgotten():
    for kind, expected in EXPECTED.items():
        files = {path.name for path in (HERE / kind).iterdir() if path.is_file()}
        assert files == {*expected, "expected.json"}


@pytest.mark.parametrize("kind", READERS)
def test_a_file_that_is_not_there_is_named(kind):
    read, error = READERS[kind]
    with pytest.raises(error, match=r"nowhere\.\w+: cannot be read"):
        read(HERE / ("nowhere.csv" if kind == "data" else "nowhere.json"))
