"""Schedules keep their laws, cover every kind, and are the same for the same seed."""

import pytest
from scenes import SCENES, SITES, Scene
from schedule import DRAWS, STALL, lawful, schedule

from anabranch.lab.live_faults import Kill, StepClock
from anabranch.link_faults import Stall
from anabranch.plan import check_plan


@pytest.fixture(params=sorted(SCENES))
def scene(request: pytest.FixtureRequest) -> Scene:
    return SCENES[request.param]()


def test_a_scene_has_two_replicas_of_everything_on_four_sites(scene: Scene) -> None:
    check_plan(scene.plan, scene.graph, scene.topology)
    assert scene.topology.names == SITES
    assert {len(sites) for sites in (*scene.plan.entries.values(), *scene.plan.replicas.values())} == {2}
    assert scene.name in SCENES


@pytest.mark.parametrize("seed", range(20))
def test_a_schedule_has_as_many_faults_as_asked_and_every_kind(scene: Scene, seed: int) -> None:
    rounds = schedule(scene, seed, 25)
    kinds = [trouble.kind for round in rounds for trouble in round]
    assert len(kinds) == 25
    assert set(kinds) == set(DRAWS)
    assert len(set(kinds[: len(DRAWS)])) == len(DRAWS)
    assert all(lawful(scene, round) for round in rounds)
    assert rounds == schedule(scene, seed, 25)


def test_the_clocks_of_entry_points_are_left_alone_and_stalls_are_long(scene: Scene) -> None:
    faults = [f for seed in range(20) for r in schedule(scene, seed, 25) for t in r for f in t.faults]
    stepped = {fault.site for fault in faults if isinstance(fault, StepClock)}
    assert stepped
    assert not stepped & set(scene.entries)
    stalls = [fault.until - fault.at for fault in faults if isinstance(fault, Stall)]
    assert stalls == pytest.approx([STALL] * len(stalls))


def test_an_entry_point_that_loses_its_log_suffers_alone(scene: Scene) -> None:
    together = 0
    for seed in range(40):
        for round in schedule(scene, seed, 25):
            lost = [f.site for t in round for f in t.faults if isinstance(f, Kill) and f.lose_log]
            together += len(round) > 1
            if set(lost) & set(scene.entries):
                assert len(round) == 1
            assert len(lost) < 2
    assert together
