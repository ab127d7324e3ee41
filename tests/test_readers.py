"""Whatever a file holds, its reader answers with a value or with its own error."""

import contextlib
import json

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.graph import Column, Filter, Graph, Output, Source
from anabranch.inputs import InputError, load_inputs
from anabranch.plan import Plan, PlanError, check_plan, spread
from anabranch.sim.faults import Crash, Cut, FaultError, Replan, check_faults, faults_from_json, load_faults
from anabranch.topology import Topology, TopologyError

GRAPH = Graph(
    "q",
    (Source("load", (Column("x", "double"),)),),
    (Filter("busy", "load", "x > 0.5"),),
    (Output("o", "busy"),),
)
SITES = Topology.from_rtt([[[0, 70], [70, 0]], [[0, 90], [70, 0]]], ["a", "b"], every=1)
PLAN = spread(GRAPH, SITES, 2)

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def altered(draw, value):
    """A JSON value with some part of it replaced, removed or doubled."""
    if isinstance(value, dict) and value and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(value)))
        rest = {k: v for k, v in value.items() if k != key}
        return rest if draw(st.integers(0, 4)) == 0 else {**rest, key: draw(altered(value[key]))}
    if isinstance(value, list) and value and draw(st.booleans()):
        i = draw(st.integers(0, len(value) - 1))
        return [*value[:i], *[draw(altered(value[i]))] * draw(st.integers(0, 2)), *value[i + 1 :]]
    return draw(anything)


def texts(good):
    value = json.loads(good)
    return st.one_of(
        altered(value).map(lambda v: json.dumps(v).encode()),
        anything.map(lambda v: json.dumps(v).encode()),
        st.binary(),
    )


TOML = """
[network]
delay = "80 ms"
bandwidth = "1 Gbit/s"
[sites.a]
capacity = 2.0
retention = "1 hour"
[sites.b]
[[links]]
from = "a"
to = "b"
rtt = "220 ms"
"""


@st.composite
def spliced(draw, text):
    """Text with a piece cut out and something put in its place."""
    begin = draw(st.integers(0, len(text)))
    end = draw(st.integers(begin, min(len(text), begin + 12)))
    pieces = st.sampled_from(["", '"', "=", "-1", "[", "]", "\n", "9" * 40, "nan", "true", "\x00"])
    return text[:begin] + draw(pieces | st.text(max_size=6)) + text[end:]


@given(texts(SITES.to_json()))
def test_topologies_in_json(text):
    with contextlib.suppress(TopologyError):
        topology = Topology.from_json(text)
        assert Topology.from_json(topology.to_json()) == topology


@given(spliced(TOML))
@settings(max_examples=300)
def test_topologies_in_toml(text):
    with contextlib.suppress(TopologyError):
        topology = Topology.from_toml(text)
        assert Topology.from_toml(topology.to_toml()) == topology


@given(texts(PLAN.to_json()))
@settings(max_examples=300)
def test_plans(text):
    with contextlib.suppress(PlanError):
        plan = Plan.from_json(text)
        assert Plan.from_json(plan.to_json()) == plan
        check_plan(plan, GRAPH, SITES)


@given(
    st.text() | spliced('epoch = 1\ncoordinator = "a"\n[entries]\nload = ["a"]\n[replicas]\nbusy = ["b"]\n')
)
def test_plans_in_toml(text):
    with contextlib.suppress(PlanError):
        Plan.from_toml(text)


FAULTS = (Crash("a", 1.0, 2.0), Replan("a", 1.0, PLAN), Cut("a", "b", 1.0, 3.0))


@given(texts(msgspec.json.encode(FAULTS)))
@settings(max_examples=300)
def test_faults(text):
    with contextlib.suppress(FaultError):
        check_faults(faults_from_json(text), GRAPH, SITES)


def test_what_the_fuzzing_begins_with_is_good():
    assert Topology.from_json(SITES.to_json()) == SITES
    assert Topology.from_toml(TOML).names == ("a", "b")
    check_plan(PLAN, GRAPH, SITES)
    check_faults(faults_from_json(msgspec.json.encode(FAULTS)), GRAPH, SITES)


@given(spliced('[[faults]]\ntype = "Crash"\nsite = "a"\nat = 30\nuntil = 90\n'))
def test_faults_in_toml(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "faults.toml"
    path.write_text(text, "utf-8")
    with contextlib.suppress(FaultError):
        check_faults(load_faults(path), GRAPH, SITES)


def parquet():
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"ts": [1, 3], "x": [2.5, None]}), sink)
    return sink.getvalue().to_pybytes()


FILES = {
    "csv": b"ts,x\n1,2.5\n3,\n",
    "ndjson": b'{"ts":1,"x":2.5}\n{"ts":3}\n',
    "parquet": parquet(),
}


@given(st.sampled_from(sorted(FILES)), st.data())
@settings(max_examples=300)
def test_data(tmp_path_factory, kind, data):
    good = FILES[kind]
    begin = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(begin, len(good)))
    path = tmp_path_factory.getbasetemp() / f"load.{kind}"
    path.write_bytes(good[:begin] + data.draw(st.binary(max_size=8)) + good[end:])
    with contextlib.suppress(InputError):
        load_inputs(GRAPH, {"load": path})
    path.write_bytes(good)
    assert load_inputs(GRAPH, {"load": path})["load"].num_rows == 2
