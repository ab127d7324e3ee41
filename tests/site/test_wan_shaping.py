"""Bytes on an emulated link, in virtual time: complete, in order, never early, never while the link is
blocked, and within the window."""

import itertools
import math
import sys

import hypothesis.strategies as st
import pytest
from hypothesis import given

from anabranch.link_faults import Cut, Slow, Stall
from anabranch.site.wan.shaping import ENTRY, SECOND, Direction, Lane, Signal
from anabranch.sites import Link, constant

MS = 1_000


def cut(until: float = math.inf) -> Cut:
    return Cut("a", "b", 0, until)


def stall() -> Stall:
    return Stall("a", "b", 0, math.inf)


def slow(factor: float) -> Slow:
    return Slow("a", "b", 0, math.inf, factor)


def lane(delay: int = 10 * MS, bandwidth: float = 0.0, window: int = 1 << 20) -> Lane:
    return Lane(Direction(constant("a", "b", delay, bandwidth), window))


def arrivals(each: Lane, now: int) -> list[bytes | Signal]:
    """All that has arrived by ``now``."""
    out: list[bytes | Signal] = []
    while (item := each.front(now)) is not None:
        signal = isinstance(item, Signal)
        out.append(item if signal else bytes(item))
        each.take(0 if signal else len(item))
    return out


def test_bytes_arrive_after_the_delay_and_no_earlier() -> None:
    on_way = lane()
    on_way.put(0, b"x")
    assert on_way.due == 10 * MS
    assert arrivals(on_way, 10 * MS - 1) == []
    assert arrivals(on_way, 10 * MS) == [b"x"]
    assert on_way.held == 0


def test_the_delay_follows_the_trace() -> None:
    link = Link("a", "b", (0, SECOND), (10 * MS, 110 * MS))
    on_way = Lane(Direction(link))
    on_way.put(SECOND // 2, b"x")
    assert on_way.due == SECOND // 2 + 60 * MS


def test_a_narrow_link_is_shared_by_its_lanes() -> None:
    direction = Direction(constant("a", "b", 0, 1_000_000))
    first, second = Lane(direction), Lane(direction)
    first.put(0, bytes(1_000))
    second.put(0, bytes(1_000))
    assert (first.due, second.due) == (1_000, 2_000)


def test_what_a_cut_took_does_not_queue_behind_itself() -> None:
    on_way = lane(delay=0, bandwidth=1e3)
    fault = cut()
    on_way.direction.begin(fault)
    on_way.put(0, bytes(1000))
    assert on_way.direction.end(MS, fault)
    on_way.again(MS)
    assert on_way.due == SECOND + MS


def test_a_lane_that_nobody_empties_holds_up_no_other() -> None:
    direction = Direction(constant("a", "b", 10 * MS, 1e6))
    stuck, free = Lane(direction), Lane(direction)
    now = 0
    while size := stuck.room(now):
        stuck.put(now, bytes(size))
    free.put(SECOND, b"x")
    assert arrivals(free, SECOND + 11 * MS) == [b"x"]
    assert stuck.held > 0


def test_slow_multiplies_the_delay_of_what_is_sent_while_it_lasts() -> None:
    on_way = lane()
    fault = slow(3)
    on_way.direction.begin(fault)
    on_way.put(0, b"x")
    assert on_way.due == 30 * MS
    assert not on_way.direction.end(0, fault)
    on_way.put(0, b"y")
    assert arrivals(on_way, 30 * MS - 1) == []
    assert arrivals(on_way, 30 * MS) == [b"x", b"y"]


def test_what_a_stall_holds_arrives_the_moment_it_ends() -> None:
    on_way = lane()
    fault = stall()
    on_way.put(0, b"x")
    on_way.direction.begin(fault)
    on_way.put(0, b"y")
    assert on_way.due is None
    assert arrivals(on_way, SECOND) == []
    assert not on_way.direction.end(SECOND, fault)
    assert arrivals(on_way, SECOND) == [b"x", b"y"]


def test_what_a_cut_took_is_sent_again_when_it_ends() -> None:
    on_way = lane()
    fault = cut()
    on_way.put(0, b"x")
    on_way.direction.begin(fault)
    on_way.put(0, b"y")
    assert arrivals(on_way, SECOND) == []
    assert on_way.direction.end(SECOND, fault)
    on_way.again(SECOND)
    assert arrivals(on_way, SECOND + 10 * MS - 1) == []
    assert arrivals(on_way, SECOND + 10 * MS) == [b"x", b"y"]


def test_of_two_cuts_the_last_to_end_counts() -> None:
    direction = lane().direction
    first, second = cut(1), cut(2)
    direction.begin(first)
    direction.begin(second)
    assert not direction.end(0, first)
    assert direction.blocked
    assert direction.end(0, second)
    assert not direction.blocked
    assert not direction.end(0, second)


def test_the_window_follows_bandwidth_and_delay_up_to_its_cap() -> None:
    narrow = Direction(constant("a", "b", 100 * MS, 1e6))
    assert 100_000 <= narrow.window(0) <= 200_000
    assert Direction(constant("a", "b", SECOND, 1e9), 1 << 20).window(0) == 1 << 20
    assert Direction(constant("a", "b", SECOND), 1 << 20).window(0) == 1 << 20


@pytest.mark.parametrize("bandwidth", [0.0, 1e4, 1e8])
@pytest.mark.parametrize("bytes_at_once", [1, 1 << 20])
def test_a_lane_that_is_blocked_is_bounded(bandwidth: float, bytes_at_once: int) -> None:
    on_way = lane(bandwidth=bandwidth)
    on_way.direction.begin(stall())
    count = 0
    while size := min(on_way.room(0), bytes_at_once):
        on_way.put(0, bytes(size))
        count += 1
    assert on_way.held + count * ENTRY <= on_way.direction.window(0) <= 1 << 20
    assert count


def test_a_lane_has_room_again_when_it_is_emptied() -> None:
    on_way = lane(window=1 << 16)
    while size := on_way.room(0):
        on_way.put(0, bytes(size))
    arrivals(on_way, SECOND)
    assert on_way.room(SECOND)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(1, 100 * MS)),
        st.tuples(st.just("put"), st.integers(1, 5_000)),
        st.tuples(st.just("take"), st.integers(1, 5_000)),
        st.tuples(st.just("signal"), st.just(0)),
        st.tuples(st.sampled_from(["cut", "stall", "slow"]), st.integers(0, 4)),
        st.tuples(st.just("end"), st.integers(0, 3)),
    ),
    max_size=60,
)
traces = st.lists(st.integers(0, 200 * MS), min_size=2, max_size=5)


def least(direction: Direction, now: int) -> int:
    """When what is sent now may arrive at the earliest, whatever else happens."""
    factor = math.prod(fault.factor for fault in direction.faults if isinstance(fault, Slow))
    if direction.link.bandwidth and factor != 1:
        return now
    return now + math.floor(direction.link.delay_at(now) * factor)


@given(steps, traces, st.sampled_from([0.0, 1e5, 1e8]), st.lists(st.integers(0, 5 * MS), min_size=1))
def test_any_schedule_delivers_all_in_order_and_nothing_early(
    steps: list[tuple[str, int]], delays: list[int], bandwidth: float, jitter: list[int]
) -> None:
    link = Link("a", "b", tuple(i * 100 * MS for i in range(len(delays))), tuple(delays), bandwidth)
    direction = Direction(link, 1 << 16, itertools.cycle(jitter).__next__)
    on_way = Lane(direction)
    now, sent, got = 0, b"", b""
    earliest: list[int] = []

    def take(most: int) -> bytes:
        taken = b""
        while len(taken) < most and (item := on_way.front(now)) is not None:
            assert not direction.blocked
            if isinstance(item, Signal):
                on_way.take()
                continue
            part = bytes(item[: most - len(taken)])
            assert now >= earliest[len(got) + len(taken)]
            on_way.take(len(part))
            taken += part
        return taken

    def end(fault: Cut | Stall | Slow) -> None:
        if direction.end(now, fault):
            on_way.again(now)

    for step, n in steps:
        match step:
            case "wait":
                now += n
            case "put" if size := min(n, on_way.room(now)):
                data = bytes(i % 251 for i in range(len(sent), len(sent) + size))
                earliest += [least(direction, now)] * size
                sent += data
                on_way.put(now, data)
            case "signal":
                on_way.put(now, Signal.FIN)
            case "take":
                got += take(n)
            case "end" if direction.faults:
                end(direction.faults[n % len(direction.faults)])
            case "cut" | "stall" | "slow":
                direction.begin({"cut": cut(), "stall": stall(), "slow": slow(n)}[step])
        assert on_way.held == len(sent) - len(got) <= 1 << 16
    while direction.faults:
        end(direction.faults[0])
    now += 3600 * SECOND
    got += take(sys.maxsize)
    assert got == sent
    assert direction.delivered == len(sent)
    assert on_way.front(now) is None
