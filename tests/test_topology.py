"""Delays: one function, two forms, no overtaking; topologies from matrices, TOML and JSON."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.durations import LONGEST
from anabranch.sites import FARTHEST
from anabranch.streams.punctuation import BEGINNING, END
from anabranch.topology import Link, Site, Topology, TopologyError, constant

AB = "[sites.a]\n[sites.b]\n"


@st.composite
def links(draw, source="a", target="b", reach=FARTHEST):
    at = draw(st.lists(st.integers(-reach, reach), min_size=1, max_size=8, unique=True).map(sorted))
    delay = draw(st.lists(st.integers(0, min(reach, LONGEST)), min_size=len(at), max_size=len(at)))
    return Link(source, target, tuple(at), tuple(delay), draw(st.sampled_from([0.0, 12_500_000.0, 0.5])))


@st.composite
def topologies(draw):
    names = draw(
        st.lists(st.from_regex(r"[A-Za-z0-9_-]{1,6}", fullmatch=True), min_size=1, max_size=3, unique=True)
    )
    sites = tuple(Site(name, draw(st.floats(1e-3, 1e6)), draw(st.integers(1, LONGEST))) for name in names)
    return Topology(sites, tuple(draw(links(a, b)) for a in names for b in names if a != b))


@given(links() | links(reach=50), st.lists(st.integers(BEGINNING, END) | st.integers(-60, 60), max_size=20))
def test_one_at_a_time_and_all_at_once_are_the_same_integers(link, times):
    times += [t + d for t in link.at for d in (-1, 0, 1)]
    assert link.delays_at(np.array(times, np.int64)).tolist() == [link.delay_at(t) for t in times]


@given(links(reach=10**4), st.lists(st.integers(-2 * 10**4, 2 * 10**4), min_size=2))
def test_no_message_overtakes_another(link, times):
    arrivals = [t + link.delay_at(t) for t in sorted(times)]
    assert arrivals == sorted(arrivals)


@given(links(reach=10**4), st.integers(-2 * 10**4, 2 * 10**4))
def test_a_delay_is_the_linear_interpolation_rounded_down(link, t):
    assert link.delay_at(t) == np.floor(np.interp(t, link.at, link.delay) + 1e-9)


def test_a_delay_that_falls_too_fast_is_raised_as_little_as_possible():
    assert Link("a", "b", (0, 10, 20, 50), (5, 30, 2, 2)).delay == (5, 30, 20, 2)
    assert Link("a", "b", (0, 10, 20), (30, 20, 10)).delay == (30, 20, 10)


def test_every_delay_that_a_link_takes_can_be_written_as_text():
    link = constant("a", "b", LONGEST)
    topology = Topology((Site("a"), Site("b", retention=LONGEST)), (link, constant("b", "a", 0)))
    assert Topology.from_toml(topology.to_toml()) == topology
    with pytest.raises(TopologyError, match="a thousand years"):
        constant("a", "b", LONGEST + 1)


def test_within_a_site_nothing_takes_time():
    topology = Topology.from_rtt([[0, 10], [10, 0]], ["a", "b"])
    assert topology.delay_at("a", "a", 5) == 0
    assert topology.delays_at("b", "b", np.arange(3)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("pair", [("a", "z"), ("z", "a"), ("z", "z")])
def test_an_unknown_site_is_named(pair):
    topology = Topology.from_rtt([[0, 10], [10, 0]], ["a", "b"])
    with pytest.raises(TopologyError, match="there is no site 'z'; the sites are a, b"):
        topology.delay_at(*pair, 0)
    with pytest.raises(TopologyError, match="there is no site 'z'"):
        topology.delays_at(*pair, np.arange(3))
    with pytest.raises(TopologyError, match="there is no site 'z'"):
        topology.subset(["a", "z"])


def test_a_delay_is_half_the_round_trip_of_its_direction():
    topology = Topology.from_rtt([[0, 70.001], [30, 0]], ["a", "b"], bandwidth=1e6, capacity=2.0, retention=7)
    assert topology.sites[0] == Site("a", 2.0, 7)
    assert topology.link("a", "b") == constant("a", "b", 35_000, 1e6)
    assert topology.delay_at("b", "a", 123) == 15_000


def test_delays_move_linearly_from_slice_to_slice():
    slices = [[[0, 10], [10, 0]], [[0, 30], [10, 0]]]
    topology = Topology.from_rtt(slices, ["a", "b"], every=2.0, start=1_000_000)
    times = np.array([0, 1_000_000, 2_000_000, 3_000_000, 9_000_000])
    assert topology.delays_at("a", "b", times).tolist() == [5_000, 5_000, 10_000, 15_000, 15_000]
    assert topology.link("b", "a") == constant("b", "a", 5_000)


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        (([[0, 1], [1, 0]], ["a"]), {}, "2 rows but there are 1 names"),
        (([[[0, 1], [1, 0]]] * 2, ["a", "b"]), {}, "how many seconds lie between them"),
        (([[[0, 1], [1, 0]]] * 2, ["a", "b"]), {"every": 0.0}, "how many seconds lie between them"),
        (([[0, 1]], ["a"]), {}, "it must be square"),
        (([[0, 1], [1]], ["a", "b"]), {}, "rows of different lengths"),
        (([[0, -1], [1, 0]], ["a", "b"]), {}, "row 0 to column 1"),
        (([[0, float("inf")], [1, 0]], ["a", "b"]), {}, "it must be between"),
        (([[0, 1], [1, 0]], ["a", "a"]), {}, "is there twice"),
    ],
)
def test_a_matrix_that_cannot_be_a_network_is_refused(arguments, options, sentence):
    with pytest.raises(TopologyError, match=sentence):
        Topology.from_rtt(*arguments, **options)


def test_a_subset_keeps_order_and_links():
    topology = Topology.from_rtt([[0, 2, 4], [6, 0, 8], [10, 12, 0]], ["a", "b", "c"])
    part = topology.subset(["c", "a"])
    assert part.names == ("c", "a")
    assert part.delay_at("c", "a", 0) == 5_000
    assert len(part.links) == 2


@given(topologies())
def test_toml_and_json_give_back_what_was_written(topology):
    assert Topology.from_json(topology.to_json()) == topology
    assert Topology.from_toml(topology.to_toml()) == topology


def test_toml_reads_as_people_write():
    topology = Topology.from_toml(
        """
        [network]
        delay = "80 ms"
        bandwidth = "1 Gbit/s"

        [sites.paris]
        capacity = 2
        retention = "1 hour"
        [sites.tokyo]
        [sites.lima]

        [[links]]
        from = "paris"
        to = "tokyo"
        rtt = "220 ms"
        bandwidth = "100 Mbit/s"

        [[links]]
        from = "tokyo"
        to = "paris"
        delay = "0 ms"

        [[links]]
        from = "lima"
        to = "paris"
        at = [0, 1_000_000]
        delay = ["90 ms", "100 ms"]
        symmetric = false
        """
    )
    assert topology.sites[0] == Site("paris", 2.0, 3_600_000_000)
    assert topology.link("paris", "tokyo") == constant("paris", "tokyo", 110_000, 12.5e6)
    assert topology.link("tokyo", "paris") == constant("tokyo", "paris", 0, 125e6)
    assert topology.link("paris", "lima") == constant("paris", "lima", 80_000, 125e6)
    assert topology.delay_at("lima", "paris", 500_000) == 95_000


def test_a_link_holds_in_both_directions_unless_it_says_otherwise():
    topology = Topology.from_toml(AB + '[[links]]\nfrom = "a"\nto = "b"\ndelay = "35 ms"\n')
    assert topology.delay_at("b", "a", 0) == 35_000


def test_toml_takes_round_trips_from_a_file(tmp_path):
    (tmp_path / "rtt.txt").write_text("# three hosts\n0 10 20\n30 0 nan\n50 60 0\n")
    (tmp_path / "sites.toml").write_text(
        '[network]\nrtt = "rtt.txt"\nnames = ["a", "b"]\nrows = [2, 1]\n'
        '[sites.b]\ncapacity = 3\n[[links]]\nfrom = "b"\nto = "a"\ndelay = "1 ms"\nsymmetric = false\n'
    )
    topology = Topology.load(tmp_path / "sites.toml")
    assert topology.names == ("a", "b")
    assert topology.site("b").capacity == 3
    assert topology.delay_at("a", "b", 0) == 30_000
    assert topology.delay_at("b", "a", 0) == 1_000


def test_toml_takes_slices_over_time_from_a_file(tmp_path):
    np.savez(
        tmp_path / "rtt.npz", rtt_tenths_ms=np.array([[[0, 100], [100, 0]], [[0, 300], [300, 0]]], np.uint32)
    )
    text = AB + '[network]\nrtt = "rtt.npz"\n'
    moving = Topology.from_toml(text + 'every = "10 minutes"\nstart = 1970-01-01T00:00:01Z\n', tmp_path)
    assert moving.link("a", "b") == Link("a", "b", (1_000_000, 601_000_000), (5_000, 15_000))
    assert Topology.from_toml(text + "slice = 1\n", tmp_path).delay_at("a", "b", 0) == 15_000
    with pytest.raises(TopologyError, match="2 slices; choose one"):
        Topology.from_toml(text, tmp_path)
