"""Links delay, hold and lose messages, and never let one overtake another on its connection."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.sim.faults import Cut, Fault, Slow, Stall
from anabranch.sim.network import SECOND, Network
from anabranch.topology import Topology

SITES = Topology.from_rtt([[0, 100], [100, 0]], ["a", "b"])
MS = 1_000


def network(*faults: Fault, bandwidth: float = 0.0) -> Network:
    links = tuple(msgspec.structs.replace(link, bandwidth=bandwidth) for link in SITES.links)
    return Network(Topology(SITES.sites, links), faults)


def arrivals(net: Network, *sends: int, size: int = 100, connection: object = "c") -> list[int | None]:
    return [net.carry(at, "a", "b", connection, size) for at in sends]


def test_a_message_takes_the_delay_of_its_link() -> None:
    assert arrivals(network(), 0, 7) == [50 * MS, 50 * MS + 7]


def test_within_a_site_there_is_no_network() -> None:
    net = network()
    assert net.carry(3, "a", "a", "c", 100) == 3
    assert net.use == {}


def test_what_is_on_the_way_during_a_cut_is_lost_in_one_direction() -> None:
    net = network(Cut("a", "b", 1.0, 2.0))
    sends = (SECOND - 60 * MS, SECOND - 40 * MS, SECOND + 1, 2 * SECOND - 1, 2 * SECOND)
    assert [arrival is None for arrival in arrivals(net, *sends)] == [False, True, True, True, False]
    assert net.carry(SECOND + 1, "b", "a", "c", 100) is not None


def test_a_stalled_link_holds_all_and_lets_it_go_in_order() -> None:
    net = network(Stall("a", "b", 1.0, 2.0))
    sends = (SECOND - 60 * MS, SECOND - 40 * MS, SECOND + 500 * MS, 2 * SECOND)
    assert arrivals(net, *sends) == [SECOND - 10 * MS, 2 * SECOND, 2 * SECOND, 2 * SECOND + 50 * MS]


def test_a_slow_link_multiplies_the_delay_but_nothing_is_overtaken() -> None:
    net = network(Slow("a", "b", 1.0, 2.0, 10.0))
    assert arrivals(net, SECOND, 2 * SECOND - 1, 2 * SECOND) == [
        SECOND + 500 * MS,
        2 * SECOND - 1 + 500 * MS,
        2 * SECOND - 1 + 500 * MS,
    ]


def test_connections_do_not_wait_for_each_other() -> None:
    net = network(Slow("a", "b", 1.0, 2.0, 10.0))
    arrivals(net, 2 * SECOND - 1, connection="c")
    assert arrivals(net, 2 * SECOND, connection="d") == [2 * SECOND + 50 * MS]


def test_bandwidth_is_shared_by_all_that_leaves() -> None:
    net = network(bandwidth=1000.0)
    assert arrivals(net, 0, 0, size=100) == [150 * MS, 250 * MS]
    assert arrivals(net, SECOND, size=100, connection="d") == [SECOND + 150 * MS]


def test_what_links_carry_is_counted_lost_or_not() -> None:
    net = network(Cut("a", "b", 0.0, 1.0))
    arrivals(net, 0, 2 * SECOND, size=30)
    use = net.use["a", "b"]
    assert (use.messages, use.bytes) == (2, 60)
    assert use.cost == pytest.approx(60 * 0.05)


FAULTS = st.lists(
    st.one_of(
        *(
            st.builds(
                lambda kind, at, length: kind(
                    "a", "b", at / 10, (at + length) / 10, *((3.0,) if kind is Slow else ())
                ),
                st.just(kind),
                st.integers(0, 30),
                st.integers(1, 20),
            )
            for kind in (Cut, Stall, Slow)
        )
    ),
    max_size=4,
)


@given(FAULTS, st.lists(st.integers(0, 5 * SECOND), max_size=12))
def test_a_connection_keeps_the_order_and_is_never_faster_than_its_link(
    faults: list[Fault], sends: list[int]
) -> None:
    net = network(*faults)
    last = 0
    for at in sorted(sends):
        arrival = net.carry(at, "a", "b", "c", 100)
        if arrival is not None:
            assert arrival >= max(last, at + 50 * MS)
            last = arrival
