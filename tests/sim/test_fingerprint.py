"""The same arguments give the same run, byte for byte, in any process."""

import os
import subprocess
import sys

import pyarrow as pa

from anabranch.protocols.messages import Heartbeat, Submit
from anabranch.sim.fingerprint import Fingerprint

RUN = """
import pyarrow as pa, sys
import anabranch as ab
q = ab.Query("q")
s = q.source("s", "g string, v bigint")
t = q.source("t", "g string, w bigint", timestamps="entry")
pairs = s.join(t, on="g", within="2 seconds")
q.output("o", pairs.aggregate("2 seconds", every="1 second", by="g", n="count(*)"))
counts = s.count_windows(3, every=2, by="g", n="count(*)")
q.output("counts", counts, order="timestamp")
ts = pa.array([i * 137_000 for i in range(60)], pa.int64()).cast(pa.timestamp("us", "UTC"))
g = [["x", "y", "z"][i % 3] for i in range(60)]
inputs = {name: pa.table({"ts": ts, "g": g, column: range(60)}) for name, column in (("s", "v"), ("t", "w"))}
sites = ab.Topology.from_rtt([[0, 30, 90], [40, 0, 70], [100, 60, 0]], ["a", "b", "c"])
plan = ab.spread(q.graph, sites, 2, seed=3)
faults = [ab.Crash("b", 2.0, 4.0, keep_log=False), ab.Cut("a", "c", 1.0, 3.0), ab.Reopen("c", "a", 5.0)]
run = ab.simulate(q, inputs, sites, plan, faults, seed=int(sys.argv[1]))
assert run.complete
print(run.digest)
"""


def digest(seed: int, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", RUN, str(seed)]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


def test_a_seed_gives_one_digest_in_any_process() -> None:
    first = digest(1, "0")
    assert len(first) == 32
    assert digest(1, "4242") == first
    assert digest(2, "0") != first


def test_the_digest_is_of_every_message_and_its_time() -> None:
    digests = set()
    for now, sender, epoch in ((1, "a", 1), (2, "a", 1), (1, "b", 1), (1, "a", 2)):
        fingerprint = Fingerprint()
        fingerprint.add(now, sender, "c", None, Heartbeat((epoch, "a")))
        digests.add(fingerprint.hexdigest)
    assert len(digests) == 4


def test_the_digest_is_of_every_value() -> None:
    digests = set()
    for values in ([1.0, None], [None, 1.0], [1.0, 2.0], [1.0, -1.0]):
        rows = pa.RecordBatch.from_pydict({"v": pa.array(values, pa.float64())})
        fingerprint = Fingerprint()
        fingerprint.add(1, "a", "b", "s", Submit("s", "p", 0, rows, 0, 0, (0, 0), 0))
        digests.add(fingerprint.hexdigest)
    assert len(digests) == 4
