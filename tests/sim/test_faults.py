"""Fault lists survive their files; what cannot happen is refused (see tests/bad/faults for more)."""

import msgspec
import pytest

from anabranch.graph import Column, Filter, Graph, Output, Source
from anabranch.plan import spread
from anabranch.sim.faults import (
    Burst,
    ClockOffset,
    Crash,
    Cut,
    FaultError,
    Redeliver,
    Reopen,
    Replan,
    Slow,
    SlowDisk,
    Stall,
    check_faults,
    faults_from_json,
    load_faults,
)
from anabranch.topology import Topology

GRAPH = Graph(
    "q",
    (Source("load", (Column("x", "double"),)),),
    (Filter("busy", "load", "x > 0.5"),),
    (Output("o", "busy"),),
)
SITES = Topology.from_rtt([[0, 70], [70, 0]], ["a", "b"])
FAULTS = (
    Crash("a", 1.0),
    Crash("b", 1.0, 2.0, keep_log=False, lose_tail=3),
    Cut("a", "b", 1.0, 2.0),
    Stall("b", "a", 1.0, 2.0),
    Slow("a", "b", 1.0, 2.0, 1.5),
    ClockOffset("a", -3.0, skew=0.01),
    SlowDisk("a", 1.0, 2.0, 0.5),
    Reopen("a", "b", 1.0),
    Redeliver("a", "b", 1.0, 7),
    Burst("load", 1.0, 2.0),
    Replan("a", 1.0, spread(GRAPH, SITES, 1)),
)


def test_every_fault_survives_json(tmp_path):
    text = msgspec.json.encode(FAULTS)
    assert faults_from_json(text) == FAULTS
    (tmp_path / "faults.json").write_bytes(b'{"faults": ' + text + b"}")
    assert load_faults(tmp_path / "faults.json") == FAULTS
    check_faults(FAULTS, GRAPH, SITES)


def test_faults_are_written_in_toml(tmp_path):
    (tmp_path / "faults.toml").write_text('[[faults]]\ntype = "Crash"\nsite = "a"\nat = 30\nuntil = 90\n')
    assert load_faults(tmp_path / "faults.toml") == (Crash("a", 30.0, 90.0),)


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (Cut("a", "b", 2.0, 1.0), "it ends at 1.0"),
        (Slow("a", "b", 1.0, float("nan"), 2.0), "until is nan"),
        (SlowDisk("a", 1.0, 2.0, -0.5), "delay is -0.5"),
        (Crash("a", 1.0, lose_tail=-1), "lose_tail is -1"),
        (Crash("z", 1.0), "site is 'z'; the sites are a, b"),
    ],
)
def test_a_fault_made_in_python_is_checked_too(fault, sentence):
    with pytest.raises(FaultError, match=rf"fault 2 \({type(fault).__name__}\): .*{sentence}"):
        check_faults((FAULTS[0], fault), GRAPH, SITES)
