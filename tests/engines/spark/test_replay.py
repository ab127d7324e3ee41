"""``ab.replay``: a query on one real Spark, streamed to the end."""

import pyarrow as pa
import pytest

import anabranch as ab

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]


def test_a_replay_is_the_ideal_run() -> None:
    q = ab.Query("netwatch")
    load = q.source("load", "host string, load double", lateness="1 s")
    pairs = load.join(load.select(host="host", twice="load * 2"), within="2 s", where="twice > 1")
    q.output("all", load)
    q.output("counts", pairs.count_windows(5, every=2, by="host", n="count(*)", top="max(twice)"))
    each = pairs.aggregate("5 s", by="host", n="count(*)").select(host="host", n="n")
    q.output("worst", each.top(2, by="n", window="10 s"))
    ts = [i * 400_000 - 5_000_000 for i in range(40)]
    table = pa.table({"ts": ts, "host": ["a", "b", None, "c"] * 10, "load": [i / 17 for i in range(40)]})
    made, meant = ab.replay(q, {"load": table}), ab.ideal(q, {"load": table})
    assert set(made) == set(meant)
    for name, rows in meant.items():
        assert rows.num_rows > 3
        assert made[name].equals(rows), name
