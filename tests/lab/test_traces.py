"""The generated networks are those that were measured, as far as a few numbers can tell."""

import os
from pathlib import Path

import pytest

from anabranch.lab.traces import plot

DATA = Path(os.environ.get("ANABRANCH_DATA", Path(__file__).parents[2] / ".." / "shared" / "data"))


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="the measured round-trip times are not here")
def test_generated_traces_are_close_to_the_measured_ones(tmp_path):
    table = plot(tmp_path / "traces.png", DATA)
    assert (tmp_path / "traces.png").read_bytes().startswith(b"\x89PNG")
    for columns in table.values():
        measured, generated = columns["measured"], columns["generated"]
        for name in (
            "rtt_ms_p25",
            "rtt_ms_p50",
            "rtt_ms_p75",
            "variation_p50",
            "variation_p75",
            "variation_p90",
        ):
            assert generated[name] == pytest.approx(measured[name], rel=0.4), name
        for name in (
            "rtt_ms_p99",
            "over_median_p90",
            "over_median_p99",
            "over_median_p99.9",
            "variation_p99",
        ):
            assert measured[name] / 3 < generated[name] < measured[name] * 3, name
