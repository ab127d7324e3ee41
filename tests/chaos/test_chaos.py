"""The guarantee on live sites, broken at random: four sites of processes, logs and Spark, two copies of every
operator, and after each fault the application's output is the ideal run's.

``ANABRANCH_CHAOS`` says how many faults each query suffers; ``make chaos`` takes 25. Unless it is given, one
query suffers a few of different kinds. ``ANABRANCH_CHAOS_SEED`` is the seed.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
import trial
from scenes import SCENES
from schedule import Trouble, schedule
from trial import Failure, run

from anabranch.lab.auditor import Auditor
from anabranch.lab.live_faults import KillProcess
from anabranch.site.config import Spark
from anabranch.streams.batch import Batch

SEED = int(os.environ.get("ANABRANCH_CHAOS_SEED", "3"))
GIVEN = os.environ.get("ANABRANCH_CHAOS")
FAULTS = int(GIVEN or "4")
CHOSEN = sorted(SCENES) if GIVEN else [sorted(SCENES)[SEED % len(SCENES)]]


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("name", CHOSEN)
def test_after_every_fault_the_output_is_the_ideal_run(name: str, tmp_path: Path) -> None:
    scene = SCENES[name]()
    survived = asyncio.run(run(scene, schedule(scene, SEED, FAULTS), SEED, tmp_path, Spark()))
    assert sum(len(round.kinds) for round in survived) == FAULTS


def test_a_tuple_that_is_lost_is_told_with_all_that_is_needed_to_repeat_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first fault, the application is deprived of one tuple."""
    receive, deprived = Auditor.receive, False

    def lossy(self: Auditor, application: str, rows: Batch) -> None:
        nonlocal deprived
        take = self.compared > 0 and not deprived
        deprived = deprived or take
        receive(self, application, rows.slice(1) if take else rows)

    monkeypatch.setattr(Auditor, "receive", lossy)
    monkeypatch.setattr(trial, "FAILURES", tmp_path / "kept")
    fault = KillProcess("dublin", "agent", 0.2)
    rounds = [(Trouble("agent", (fault,)),)]
    with pytest.raises(Failure) as caught:
        asyncio.run(run(SCENES["stateless"](), rounds, 5, tmp_path / "sites", None))
    told = str(caught.value)
    assert deprived
    assert "1 tuples are missing and 0 are too many" in told
    assert "dublin loses its agent" in told
    assert "ANABRANCH_CHAOS=1 ANABRANCH_CHAOS_SEED=5 .venv/bin/pytest tests/chaos -k stateless" in told
    (kept,) = (tmp_path / "kept").iterdir()
    assert str(kept) in told
    assert (kept / "dublin" / "agent.jsonl").is_file()
    assert "KillProcess" in (kept / "schedule.json").read_text()
