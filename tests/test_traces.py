"""Synthetic traces: the same however they are cut, shaped as their model says."""

import subprocess
import sys

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.sites import TopologyError
from anabranch.traces import DEVICES, SERVERS, Traces

NAMES = [f"s{i}" for i in range(5)]
STILL = msgspec.structs.replace(
    SERVERS, jitter=0.0, daily=0.0, episodes=0.0, site_outages=0.0, link_outages=0.0
)
TRACES = {"servers": Traces(NAMES, SERVERS, seed=3), "devices": Traces(NAMES, DEVICES, seed=3)}
WHOLE = {name: traces.rtt(0, 20_000) for name, traces in TRACES.items()}


@given(st.sampled_from(sorted(TRACES)), st.integers(0, 19_000), st.integers(0, 1_000))
@settings(max_examples=40, deadline=None)
def test_a_chunk_is_what_it_is_in_the_whole(name, first, count):
    assert np.array_equal(TRACES[name].rtt(first, count), WHOLE[name][first : first + count])


@given(st.integers(0, 20_000), st.integers(1, 3_000))
@settings(max_examples=20, deadline=None)
def test_a_chunk_has_the_outages_of_the_whole(first, count):
    often = Traces(NAMES, msgspec.structs.replace(SERVERS, site_outages=40.0, link_outages=5.0), seed=1)
    whole = often.outages(0, 30_000)
    begin, end = first * 10.0, (first + count) * 10.0
    assert often.outages(first, count) == tuple(o for o in whole if o.at < end and o.until > begin)


def test_what_began_yesterday_still_counts():
    model = msgspec.structs.replace(STILL, episodes=20.0, site_outages=300.0, link_outages=300.0)
    traces, midnight = Traces(NAMES, model, seed=5), 8640
    over = [o for o in traces.outages(0, midnight) if o.until > 86_400]
    assert over
    assert set(over) <= set(traces.outages(midnight, 10))
    assert np.array_equal(traces.rtt(0, midnight + 10)[midnight:], traces.rtt(midnight, 10))


def test_one_seed_is_one_trace_in_every_process():
    program = (
        "import hashlib; from anabranch.traces import Traces;"
        "t = Traces(list('abc'), seed=11); print(hashlib.sha256(t.delays(0, 9000).tobytes()).hexdigest())"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1
    assert not np.array_equal(Traces(NAMES, seed=1).rtt(0, 5), Traces(NAMES, seed=2).rtt(0, 5))


def test_an_undisturbed_network_stands_still():
    traces = Traces(NAMES, STILL, seed=4)
    assert (traces.rtt(0, 50) == traces.base.astype(np.float32)).all()
    assert (traces.base == traces.base.T).all()
    assert (np.diagonal(traces.base) == 0).all()
    assert (traces.base[~np.eye(5, dtype=bool)] > 0).all()


def test_a_base_that_was_measured_is_kept():
    base = [[0, 40, 0], [40, 0, 10], [0, 10, 0]]
    traces = Traces(["a", "b", "c"], STILL, base_ms=base)
    assert traces.rtt(7, 1)[0].tolist() == [[0, 40, 50], [40, 0, 10], [50, 10, 0]]


def test_what_disturbs_a_network_only_adds():
    for name, traces in TRACES.items():
        assert (WHOLE[name] >= traces.base.astype(np.float32)).all()


def test_a_day_swings_once():
    traces = Traces(NAMES, msgspec.structs.replace(STILL, daily=50.0), every=3600, seed=4)
    first, second = traces.rtt(0, 24), traces.rtt(24, 24)
    assert np.allclose(first, second, atol=0.01)
    assert (first.max(axis=0) - first.min(axis=0))[0, 1] > 1


def test_an_episode_slows_every_link_of_its_site():
    traces = Traces(NAMES, msgspec.structs.replace(STILL, episodes=1.0), seed=4)
    added = traces.rtt(0, 8640) - traces.base.astype(np.float32)
    slow = added[:, 0, 1:].min(axis=1) > 1
    assert 0 < slow.mean() < 0.5
    assert np.array_equal(added[:, 0, 1:] > 1, added[:, 1:, 0] > 1)


def test_the_tail_of_the_jitter_is_as_heavy_as_the_model_says():
    model = msgspec.structs.replace(STILL, jitter=1.0, jitter_spread=0.0, jitter_growth=0.0, tail=1.5)
    traces = Traces(["a", "b"], model, seed=2)
    jitter = traces.rtt(0, 100_000)[:, 0, 1] - np.float32(traces.base[0, 1])
    for x in (1.0, 10.0, 30.0):
        assert (jitter > x).mean() == pytest.approx((1 + x) ** -1.5, rel=0.15)


def test_jitter_stays_for_as_long_as_the_model_says():
    traces = Traces(NAMES, msgspec.structs.replace(STILL, jitter=5.0, hold=40.0), seed=2)
    rtt = traces.rtt(0, 400)[:, 0, 1].reshape(100, 4)
    assert (rtt == rtt[:, :1]).all()
    assert len(np.unique(rtt)) > 90


def test_a_message_sent_during_an_outage_waits_for_its_end():
    model = msgspec.structs.replace(STILL, site_outages=10.0)
    traces = Traces(NAMES, model, seed=6)
    still = Traces(NAMES, STILL, seed=6).delays(0, 1)[0]
    outage = traces.outages(0, 8640 * 3)[0]
    a, others = NAMES.index(outage.a), [name for name in NAMES if name != outage.a]
    assert outage.b is None
    steps = np.arange(int(outage.at // 10) - 3, int(outage.until // 10) + 3)
    delays = traces.delays(int(steps[0]), len(steps))
    for b in map(NAMES.index, others):
        for i, j in ((a, b), (b, a)):
            out = (steps * 10.0 >= outage.at) & (steps * 10.0 < outage.until)
            assert 0 < out.sum() < len(steps)
            assert (delays[~out, i, j] == still[i, j]).all()
            arrivals = steps[out] * 10_000_000 + delays[out, i, j]
            assert np.abs(arrivals - outage.until * 1e6 - still[i, j]).max() <= 1
    assert np.array_equal(traces.delays(int(steps[0]), 9, outages=False), np.repeat(still[None], 9, axis=0))


def test_outages_last_tens_of_minutes():
    traces = Traces(NAMES, msgspec.structs.replace(SERVERS, site_outages=30.0), seed=1)
    minutes = [(outage.until - outage.at) / 60 for outage in traces.outages(0, 8640 * 30)]
    assert len(minutes) == pytest.approx(5 * 30, rel=0.4)
    assert np.median(minutes) == pytest.approx(25, rel=0.25)


def test_a_trace_becomes_a_topology():
    traces = Traces(NAMES, seed=3)
    topology = traces.topology(100, first=50, start=7)
    delays = traces.delays(50, 100, outages=False)
    times = 7 + np.arange(100) * 10_000_000
    assert topology.names == tuple(NAMES)
    assert np.abs(topology.delays_at("s1", "s3", times) - delays[:, 1, 3]).max() <= 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"names": []}, "at least one site"),
        ({"names": ["a"], "every": 0.0}, "between 0 and a day"),
        ({"names": ["a"], "seed": -1}, "seed is -1"),
        ({"names": ["a"], "base_ms": [[0, 1], [1, 0]]}, "2 rows but there are 1 names"),
    ],
)
def test_a_trace_that_cannot_be_is_refused(options, sentence):
    with pytest.raises(TopologyError, match=sentence):
        Traces(**options)
    with pytest.raises(TopologyError, match="begins at step 0"):
        TRACES["servers"].rtt(-1, 5)
