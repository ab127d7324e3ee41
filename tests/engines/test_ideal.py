"""The ideal run: what enters it, and in what form it comes out."""

import pyarrow as pa
import pytest

from anabranch.engines.ideal import ideal, ideal_streams
from anabranch.graph import Aggregate, Column, Filter, Graph, Output, Source
from anabranch.input_tables import InputError
from anabranch.streams.batch import TIMESTAMP
from anabranch.streams.hashing import source_ids

COLUMNS = (Column("k", "bigint"), Column("g", "string"))


def graph(operators=(), output="a", **source):
    return Graph("q", (Source("a", COLUMNS, **source),), operators, (Output("out", output),))


def table(ts, k, **more):
    columns = {"ts": pa.array(ts, TIMESTAMP), "k": pa.array(k, pa.int64()), "g": pa.array(["x"] * len(ts))}
    return pa.table(columns | {name: pa.array(values, TIMESTAMP) for name, values in more.items()})


def test_results_are_in_canonical_order_with_their_ids():
    rows = ideal(graph(), {"a": table([3, 5, 5], [9, 2, None])})["out"]
    assert rows.column_names == ["ts", "k", "g", "_hi", "_lo"]
    assert rows.schema.field("ts").type == TIMESTAMP
    assert rows.column("k").to_pylist() == [9, None, 2]
    hi, lo = source_ids("a", "a", 0, 3)
    assert rows.column("_hi").to_pylist() == hi[[0, 2, 1]].tolist()
    assert rows.column("_lo").to_pylist() == lo[[0, 2, 1]].tolist()


def test_a_tuple_is_late_when_it_arrives_more_than_the_lateness_after_its_timestamp():
    given = table([10, 10, 10], [1, 2, 3], arrival=[10, 15, 16])
    assert ideal(graph(lateness=5), {"a": given})["out"].column("k").to_pylist() == [1, 2]
    assert ideal(graph(), {"a": given})["out"].column("k").to_pylist() == [1]
    assert ideal(graph(timestamps="entry"), {"a": given})["out"].num_rows == 3
    without = given.drop_columns("arrival")
    assert ideal(graph(), {"a": without})["out"].num_rows == 3


def test_sequence_numbers_count_late_tuples_too():
    given = table([10, 1, 10], [1, 2, 3], arrival=[10, 10, 10])
    out = ideal(graph(), {"a": given})["out"]
    assert out.column("_lo").to_pylist() == source_ids("a", "a", 0, 3)[1][[0, 2]].tolist()


def test_equal_contents_are_told_apart_by_their_number_and_by_nothing_else():
    one = ideal(graph(identity="content"), {"a": table([1, 1, 1], [7, 8, 7])})["out"]
    other = ideal(graph(identity="content"), {"a": table([1, 1, 1], [8, 7, 7])})["out"]
    assert one.equals(other)
    assert len(set(one.column("_lo").to_pylist())) == 3


def test_every_stream_can_be_seen():
    query = graph(
        (Filter("big", "a", "k > 1"), Aggregate("n", "big", 10, 10, ("g",), (("n", "count(*)"),))), "n"
    )
    streams = ideal_streams(query, {"a": table([1, 2, 12], [1, 2, 3])})
    assert {name: rows.num_rows for name, rows in streams.items()} == {"a": 3, "big": 2, "n": 2}
    assert streams["n"].column("n").to_pylist() == [1, 1]
    assert streams["n"].column_names == ["ts", "window_start", "window_end", "g", "n", "_hi", "_lo"]


def test_nothing_in_gives_empty_tables_of_the_right_columns():
    query = graph((Filter("big", "a", "k > 1"),), "big")
    out = ideal(query, {"a": table([], [])})["out"]
    assert out.num_rows == 0
    assert out.schema.types == [TIMESTAMP, pa.int64(), pa.string(), pa.int64(), pa.int64()]


def test_tables_in_chunks_are_one_stream():
    whole = table([1, 2, 3], [1, 2, 3])
    parts = pa.concat_tables([whole.slice(0, 1), whole.slice(1)])
    assert ideal(graph(), {"a": parts})["out"].equals(ideal(graph(), {"a": whole})["out"])


def test_a_table_that_does_not_fit_is_refused():
    with pytest.raises(InputError, match="source 'a'"):
        ideal(graph(), {"a": table([1], [1]).drop_columns("k")})
