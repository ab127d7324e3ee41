"""The comparison that live runs are judged by: it equals the ideal run, and sees whatever differs from it."""

import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.engines.ideal import ideal
from anabranch.lab.auditor import Auditor
from anabranch.plan import Plan, Subscription, full_mesh
from anabranch.streams.batch import Batch, assemble, timestamps, with_ids
from anabranch.streams.hashing import source_ids
from anabranch.types import arrow_schema

SECOND = 1_000_000
COUNT = 400


def query() -> ab.Query:
    q = ab.Query("q")
    load = q.source("load", "host string, load double")
    rtt = q.source("rtt", "host string, ms double")
    pairs = load.where("load > 0.3").join(rtt, on="host", within="200 ms", name="pairs")
    q.output("worst", pairs.aggregate("1 second", every="500 ms", by="host", worst="max(ms)", name="worst"))
    return q


def plan() -> Plan:
    graph = query().graph
    return full_mesh(
        graph,
        dict.fromkeys(("load", "rtt"), ("paris",)),
        {operator.name: ("paris",) for operator in graph.operators},
        (Subscription("app", "worst", "paris"),),
    )


def entered(name: str, seed: int) -> Batch:
    graph = query().graph
    rng = np.random.default_rng(seed)
    ts = np.sort(rng.choice(10 * SECOND, COUNT, replace=False)) + SECOND
    hosts = pa.array(["a", "b"]).take(pa.array(rng.integers(0, 2, COUNT)))
    schema = with_ids(arrow_schema(graph.schema(name)))
    return assemble(ts, *source_ids(name, name, 0, COUNT), [hosts, pa.array(rng.random(COUNT))], schema)


INPUTS = {"load": entered("load", 1), "rtt": entered("rtt", 2)}


def meant() -> Batch:
    """The ideal run's output as an application receives it."""
    inputs = {
        name: pa.Table.from_batches([rows]).drop_columns(["_hi", "_lo"]).rename_columns({"_ts": "ts"})
        for name, rows in INPUTS.items()
    }
    table = ideal(query(), inputs)["worst"]
    names = ["ts", "_hi", "_lo", *(n for n in table.column_names if n not in ("ts", "_hi", "_lo"))]
    (rows,) = table.select(names).rename_columns(["_ts", *names[1:]]).combine_chunks().to_batches()
    return rows


def fed() -> Auditor:
    auditor = Auditor(query().graph, plan())
    for name, rows in INPUTS.items():
        for first in range(0, COUNT, 70):
            auditor.enter(name, rows.slice(first, 70))
    return auditor


@pytest.mark.parametrize("steps", [1, 7])
def test_the_ideal_run_in_any_pieces_is_no_difference(steps: int) -> None:
    auditor, rows = fed(), meant()
    auditor.receive("app", rows.slice(5))
    auditor.receive("app", rows.slice(0, 5))
    for step in range(1, steps + 1):
        assert auditor.check(SECOND + 11 * SECOND * step // steps) == []
    assert auditor.compared == rows.num_rows > 20


def test_what_is_behind_the_punctuation_is_not_asked_for_yet() -> None:
    auditor, rows = fed(), meant()
    early = rows.filter(pa.array(timestamps(rows) <= 5 * SECOND))
    auditor.receive("app", early)
    assert auditor.check(5 * SECOND) == []
    (difference,) = auditor.check(12 * SECOND)
    assert len(difference.missing) == rows.num_rows - early.num_rows > 0


def test_a_missing_a_doubled_and_a_changed_tuple_are_seen() -> None:
    rows = meant()
    missing, doubled, changed = fed(), fed(), fed()
    missing.receive("app", rows.slice(1))
    doubled.receive("app", rows)
    doubled.receive("app", rows.slice(3, 1))
    worst = rows.column("worst").to_pylist()
    worst[2] = np.nextafter(worst[2], 2)
    at = rows.schema.get_field_index("worst")
    changed.receive("app", rows.set_column(at, rows.schema.field(at), pa.array(worst)))
    found = {}
    for what, auditor in (("missing", missing), ("doubled", doubled), ("changed", changed)):
        (difference,) = auditor.check(12 * SECOND)
        found[what] = (len(difference.missing), len(difference.extra))
    assert found == {"missing": (1, 0), "doubled": (0, 1), "changed": (1, 1)}


def test_a_tuple_that_comes_again_behind_a_check_is_seen() -> None:
    auditor, rows = fed(), meant()
    auditor.receive("app", rows)
    assert auditor.check(8 * SECOND) == []
    auditor.receive("app", rows.slice(0, 1))
    (difference,) = auditor.check(12 * SECOND)
    assert (len(difference.missing), len(difference.extra)) == (0, 1)
    assert "0 tuples are missing and 1 are too many" in str(difference)
