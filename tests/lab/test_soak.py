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


def test_growth_is_seen_and_waves_are_not_growth() -> None:
    minutes = [60.0 * minute for minute in range(30)]
    grows = growth(minutes, [100.0 + 2 * minute for minute in range(30)])
    assert grows.slope_per_minute == pytest.approx(2.0)
    assert grows.last - grows.first == pytest.approx(40.0)
    waves = growth(minutes, [100.0 + 50 * (minute % 2) for minute in range(30)])
    assert abs(waves.slope_per_minute) < 0.5
    assert waves.last == waves.first
