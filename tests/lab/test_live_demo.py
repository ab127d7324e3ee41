"""The live demonstration on real sites: whatever is done to them, the application receives the ideal run."""

import asyncio
from pathlib import Path

from anabranch.lab.live_demo import APPLICATION, CUT_OFF, KILLED, play, report, scenario


def test_one_copy_killed_the_other_cut_off_and_nothing_is_lost(tmp_path: Path) -> None:
    said: list[str] = []
    outcome = asyncio.run(play(scenario(10), tmp_path, said.append, spark=None))
    told = report(outcome)
    assert told["audit"]["exact"], told
    assert told["audit"]["delivered"] > 0
    assert [what for what in said if what.startswith((KILLED, CUT_OFF))] == [
        each["what"] for each in told["faults"]
    ]
    assert sum(told["first_arrivals"].values()) == told["audit"]["delivered"]
    assert outcome.run.deliveries[APPLICATION].num_rows == told["audit"]["delivered"]
