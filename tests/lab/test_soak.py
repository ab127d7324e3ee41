"""Live sites for a minute, one of which goes down and comes back: exact, and measured."""

import asyncio
from pathlib import Path

import pytest

from anabranch.lab.footprint import growth
from anabranch.lab.soak import SITES, soak


@pytest.mark.slow
def test_a_minute_of_it_is_exact_and_measured(tmp_path: Path) -> None:
    said: list[str] = []
    result = asyncio.run(soak(1, 400, 1, tmp_path, None, said.append))
    assert result.exact, result.differences
    assert result.cycles == 1
    assert result.entered > 400 * 50
    assert result.audited > result.entered / 4 * 0.9
    for measures in (result.memory_mb, result.disk_mb):
        assert set(measures) == {*SITES, "all"}
        assert all(each.last > 0 for each in measures.values())
    assert any("is killed" in words for words in said)


def test_growth_is_seen_and_what_goes_down_and_up_within_a_minute_is_none() -> None:
    seconds = [5.0 * sample for sample in range(30 * 12)]
    grows = growth(seconds, [100.0 + 2 * second / 60 for second in seconds])
    assert grows.slope_per_minute == pytest.approx(2.0)
    assert grows.last - grows.first == pytest.approx(40.0)
    cycles = growth(seconds, [0.0 if 20 <= second % 60 < 40 else 100.0 for second in seconds])
    assert (cycles.first, cycles.last, cycles.slope_per_minute) == (100.0, 100.0, 0.0)
