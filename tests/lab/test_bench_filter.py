"""The measurement of the duplicate filter measures what it says; how fast is not asserted."""

import pytest

from anabranch.lab.bench_filter import measure


def test_it_reports_every_figure():
    pytest.importorskip("polars")
    found = measure(tuples=80_000)
    assert set(found) == {
        *(f"k{k}_batch{size}_mtuples_s" for k in (2, 4) for size in (100, 1_000, 10_000)),
        "bytes_per_live_tuple",
        "python_set_mtuples_s",
        "polars_mtuples_s",
        "times_python_set",
        "times_polars",
    }
    assert all(value > 0 for value in found.values())
    assert 32 <= found["bytes_per_live_tuple"] <= 500
