"""Round-trip times: files and gaps."""

import os
from pathlib import Path

import numpy as np
import pytest

from anabranch.rtt import filled, load_rtt
from anabranch.topology import Topology, TopologyError

DATA = Path(os.environ.get("ANABRANCH_DATA", Path(__file__).parents[1] / ".." / "shared" / "data"))

NAN = float("nan")


def test_a_gap_takes_the_other_direction_at_that_time():
    assert filled([[[0, 5], [0, 0]], [[0, 0], [7, 0]]]).tolist() == [[[0, 5], [5, 0]], [[0, 7], [7, 0]]]


def test_else_the_median_of_the_pair_over_time():
    slices = [[[0, 5], [9, 0]], [[0, 6], [6, 0]], [[0, NAN], [NAN, 0]]]
    assert filled(slices)[2].tolist() == [[0, 6], [6, 0]]


def test_else_the_shortest_path_through_other_sites():
    matrix = [[0, 10, 90, NAN], [10, 0, 20, NAN], [90, 20, 0, 5], [NAN, NAN, 5, 0]]
    out = filled(matrix)[0]
    assert out[0, 3] == out[3, 0] == 35
    assert out[1, 3] == 25
    assert out[0, 2] == 90, "what was measured stays, though a detour is shorter"


def test_what_no_path_reaches_is_refused():
    with pytest.raises(TopologyError, match="between rows 0 and 2"):
        filled([[0, 5, 0], [5, 0, 0], [0, 0, 0]])


def test_text_and_npz_files_say_the_same(tmp_path):
    (tmp_path / "rtt.txt").write_text("0\t12.5 nan  # a\n\n3 0 4\n1e1 0 0\n")
    np.savez(tmp_path / "rtt.npz", rtt_tenths_ms=np.array([[0, 125, 0], [30, 0, 40], [100, 0, 0]], np.uint32))
    text, array = load_rtt(tmp_path / "rtt.txt"), load_rtt(tmp_path / "rtt.npz")
    assert np.array_equal(text, array, equal_nan=True)
    assert np.array_equal(text, [[[0, 12.5, NAN], [3, 0, 4], [10, NAN, 0]]], equal_nan=True)


def test_an_npz_file_of_something_else_is_refused(tmp_path):
    np.savez(tmp_path / "other.npz", latency=np.eye(2))
    with pytest.raises(TopologyError, match=r"other\.npz: no array 'rtt_tenths_ms' in it, only latency"):
        load_rtt(tmp_path / "other.npz")
    np.savez(tmp_path / "words.npz", rtt_tenths_ms=np.array([["a"]]))
    with pytest.raises(TopologyError, match=r"words\.npz: not a file of round-trip times"):
        load_rtt(tmp_path / "words.npz")


@pytest.mark.skipif(not DATA.is_dir(), reason="the measured round-trip times are not here")
@pytest.mark.parametrize(
    ("name", "slices", "sites", "median"),
    [("planetlab_rtt_first9", 9, 490, 135), ("seattle_rtt_first344", 344, 99, 220)],
)
def test_the_measured_networks_become_topologies(name, slices, sites, median):
    matrix = load_rtt(DATA / f"{name}.npz")
    assert matrix.shape == (slices, sites, sites)
    pairs = matrix[:, ~np.eye(sites, dtype=bool)]
    assert np.nanmedian(pairs) == pytest.approx(median, rel=0.01)
    full = filled(matrix)
    assert not np.isnan(full).any()
    topology = Topology.from_rtt(full[:, :5, :5], list("abcde"), every=60)
    assert topology.delay_at("a", "b", 0) == round(full[0, 0, 1] * 500)
