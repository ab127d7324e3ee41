"""CountAggregate: numbered over all of history, or not at all."""

import pyarrow as pa
import pytest

from anabranch.graph import Column, CountAggregate, Graph, Source
from anabranch.operators.count_aggregate import CountAggregateKernel
from anabranch.operators.state import SnapshotError
from anabranch.streams.batch import with_ids
from anabranch.streams.punctuation import BEGINNING, END

PAIRS = CountAggregate("op", "a", 2, 1, ("g",), (("total", "sum(k)"),))


def totals(batch):
    return [] if batch is None else batch.column("total").to_pylist()


def test_it_counts_in_canonical_order_behind_the_punctuation(start, rows):
    kernel = start(PAIRS)
    kernel.process(0, rows((9, "x", 100), (5, "x", 20), (5, "x", 3)))
    kernel.process(0, rows((5, "x", None), (1, "y", 7)))
    assert totals(kernel.punctuate(0, 5)) == [3, 23]  # null, 3, 20
    assert totals(kernel.punctuate(0, 9)) == [120]


def test_every_may_be_longer_than_count(start, rows):
    kernel = start(CountAggregate("op", "a", 2, 3, (), (("total", "sum(k)"),)))
    made = []
    for k in range(1, 9):
        kernel.process(0, rows((k, "x", k)))
        made += totals(kernel.punctuate(0, k))
    assert made == [1 + 2, 4 + 5, 7 + 8]
    assert kernel._kept.num_rows == 0


def test_only_what_later_windows_hold_is_kept(start, rows):
    kernel = start(PAIRS)
    for ts in range(200):
        kernel.process(0, rows((ts, "xy"[ts % 2], ts)))
        kernel.punctuate(0, ts)
    assert kernel._kept.num_rows == 2


def test_a_snapshot_is_as_of_its_punctuation(start, rows):
    peer = start(PAIRS)
    peer.process(0, rows((1, "x", 1), (2, "x", 2), (8, "x", 8)))
    peer.punctuate(0, 5)
    snapshot = peer.snapshot()
    kernel = start(PAIRS, complete_from=1)
    assert kernel.waiting
    kernel.process(0, rows((2, "x", 2), (8, "x", 8), (9, "x", 9)))
    assert kernel.punctuate(0, 9) is None
    assert kernel.punctuation == BEGINNING
    kernel.restore(snapshot)
    assert kernel.start((1,)) == 5
    assert totals(kernel.punctuate(0, 9)) == [2 + 8, 8 + 9]


@pytest.mark.parametrize(("promised", "missing_until", "since"), [(5, 3, 8), (9, 3, 9), (5, 12, 12)])
def test_a_snapshot_of_a_stream_that_has_ended_starts_it_behind_the_last_tuple(
    start, rows, promised, missing_until, since
):
    peer = start(PAIRS)
    peer.process(0, rows((1, "x", 1), (8, "x", 8)))
    peer.punctuate(0, promised)
    peer.punctuate(0, END)
    kernel = start(PAIRS, complete_from=missing_until)
    kernel.process(0, rows((8, "x", 8)))
    kernel.restore(peer.snapshot())
    assert kernel.start((missing_until,)) == since, "END would say that nothing is known"
    assert kernel.punctuate(0, END) is None
    assert kernel.punctuation == END
    again = start(PAIRS, complete_from=missing_until)
    again.restore(kernel.snapshot())
    assert again.start((missing_until,)) == since, "it can hand on what it was given"


def test_a_hole_in_the_input_makes_it_wait_again(start, rows):
    kernel = start(PAIRS)
    kernel.process(0, rows((1, "x", 1)))
    kernel.punctuate(0, 3)
    assert kernel.start((3,)) == BEGINNING  # nothing is missing up to 3
    assert kernel.start((7,)) == END
    kernel.process(0, rows((8, "x", 8), (9, "x", 9)))
    assert kernel.punctuate(0, 9) is None
    assert kernel.punctuation == 3


def test_a_snapshot_older_than_its_own_history_changes_nothing(start, rows):
    old = start(PAIRS)
    old.punctuate(0, 1)
    kernel = start(PAIRS)
    kernel.process(0, rows((2, "x", 2)))
    kernel.punctuate(0, 4)
    kernel.restore(old.snapshot())
    kernel.process(0, rows((5, "x", 5)))
    assert totals(kernel.punctuate(0, 5)) == [7]


def test_garbage_is_refused(start):
    with pytest.raises(SnapshotError, match="operator 'op' cannot restore"):
        start(PAIRS).restore(b"garbage")
    with pytest.raises(SnapshotError, match="no snapshot at all"):
        start(PAIRS).restore(b"")


def test_tuples_that_look_equal_are_numbered_by_their_ids():
    """The two zeros are equal in canonical order, and yet not the same."""
    columns = (Column("x", "double"),)
    one = CountAggregate("op", "a", 1, 1, (), (("x", "max(x)"),))
    zeros = pa.RecordBatch.from_pydict(
        {"_ts": [5, 5], "_hi": [0, 0], "_lo": [1, 2], "x": [-0.0, 0.0]},
        schema=with_ids(pa.schema({"x": pa.float64()})),
    )
    made = []
    for arrival in ([0, 1], [1, 0]):
        kernel = CountAggregateKernel(one, Graph("q", (Source("a", columns),), (one,), ()))
        kernel.process(0, zeros.take(pa.array(arrival)))
        made.append([str(x) for x in kernel.punctuate(0, END).column("x").to_pylist()])
    assert made == [["-0.0", "0.0"]] * 2
