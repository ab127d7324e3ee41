"""Plans: every possible branch, a simple placement, and what fits a query and its sites."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.graph import Column, Filter, Graph, Join, Output, Source, Union
from anabranch.plan import Branch, Plan, PlanError, Subscription, check_plan, consumers, full_mesh, spread
from anabranch.topology import Topology

LOAD, RTT = (Source(name, (Column("host", "string"), Column("x", "double"))) for name in ("load", "rtt"))
GRAPH = Graph(
    "netwatch",
    (LOAD, RTT),
    (
        Filter("busy", "load", "x > 0.5"),
        Join("pairs", "busy", "rtt", 10, ("host",)),
        Union("all", ("busy", "busy")),
    ),
    (Output("alerts", "pairs"), Output("raw", "all")),
)
NAMES = ("a", "b", "c", "d")
SITES = Topology.from_rtt([[0 if i == j else 10 for j in range(4)] for i in range(4)], NAMES)


def test_consumers_are_named_once_each():
    assert consumers(GRAPH) == {
        "load": ("busy",),
        "rtt": ("pairs",),
        "busy": ("pairs", "all"),
        "pairs": (),
        "all": (),
    }


def test_a_full_mesh_has_every_possible_branch_once():
    plan = full_mesh(
        GRAPH,
        {"load": ("a", "b"), "rtt": ["c"]},
        {"busy": ("a",), "pairs": ("b", "c"), "all": ("c", "d")},
        [Subscription("alerts@d", "alerts", "d")],
        epoch=3,
        coordinator="a",
    )
    check_plan(plan, GRAPH, SITES)
    expected = {
        *(Branch("load", site, "a") for site in "ab"),
        *(Branch("rtt", "c", site) for site in "bc"),
        *(Branch("busy", "a", site) for site in "bcd"),
        *(Branch("pairs", site, "alerts@d") for site in "bc"),
    }
    assert set(plan.branches) == expected
    assert len(plan.branches) == len(expected)
    assert (plan.epoch, plan.coordinator, plan.mirrors) == (3, "a", 1)


@given(st.integers(1, 4), st.integers(0, 2**32))
def test_a_spread_plan_fits_and_is_the_same_again(k, seed):
    plan = spread(GRAPH, SITES, k, seed=seed)
    check_plan(plan, GRAPH, SITES)
    assert all(len(set(sites)) == k for sites in plan.replicas.values())
    assert all(len(sites) == 2 for sites in plan.entries.values())
    assert [s.output for s in plan.subscriptions] == ["alerts", "raw"]
    assert spread(GRAPH, SITES, k, seed=seed).to_json() == plan.to_json()


@pytest.mark.parametrize("seed", range(10))
def test_a_spread_plan_loads_sites_evenly(seed):
    plan = spread(GRAPH, SITES, 2, entries={"load": ["a"], "rtt": ["a"]}, seed=seed)
    runs = [sum(site in sites for sites in plan.replicas.values()) for site in NAMES]
    assert max(runs) - min(runs) <= 1


def test_a_spread_plan_takes_entry_points_and_applications_as_given():
    apps = [Subscription("me", "alerts", "b")]
    plan = spread(GRAPH, SITES, 1, entries={"load": ["d"]}, apps=apps)
    assert plan.entries["load"] == ("d",)
    assert plan.subscriptions == tuple(apps)
    check_plan(plan, GRAPH, SITES)


@pytest.mark.parametrize("k", [0, 5])
def test_more_replicas_than_sites_are_refused(k):
    with pytest.raises(PlanError, match=f"k is {k} but there are 4 sites"):
        spread(GRAPH, SITES, k)


def test_one_mirror_is_never_too_many():
    check_plan(spread(GRAPH, SITES, 1, entries={"load": ["a"], "rtt": ["b"]}), GRAPH, SITES)


def test_a_plan_survives_its_files(tmp_path):
    plan = spread(GRAPH, SITES, 2, seed=5)
    assert Plan.from_json(plan.to_json()) == plan
    (tmp_path / "plan.json").write_bytes(plan.to_json())
    assert Plan.load(tmp_path / "plan.json") == plan
    (tmp_path / "plan.toml").write_text(
        'epoch = 1\ncoordinator = ""\nsubscriptions = []\n'
        '[entries]\nload = ["a", "b"]\n[replicas]\nbusy = ["c"]\n'
        '[[branches]]\nstream = "load"\nsource = "a"\ntarget = "c"\n'
    )
    assert Plan.load(tmp_path / "plan.toml") == Plan(
        1, "", {"load": ("a", "b")}, {"busy": ("c",)}, (), (Branch("load", "a", "c"),)
    )
