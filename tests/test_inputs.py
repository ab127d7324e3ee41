"""Input tables: what is cast, what is refused, and files that say the same in three formats."""

from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.graph import Graph, Source
from anabranch.inputs import InputError, check_inputs, load_inputs
from anabranch.types import parse_ddl

UTC_US = pa.timestamp("us", "UTC")


def graph(ddl):
    return Graph("q", (Source("s", parse_ddl(ddl)),), (), ())


def checked(ddl, **columns):
    return check_inputs(graph(ddl), {"s": pa.table(columns)})["s"]


ROWS = [
    {
        "ts": datetime(2024, 1, 1, tzinfo=UTC),
        "h": "",
        "v": 0.1,
        "f": 0.5,
        "n": 2**40,
        "k": True,
        "b": b"hi",
        "d": date(2024, 2, 29),
        "t": datetime(2024, 1, 1, 1, 2, 3, 456789, tzinfo=UTC),
    },
    {"ts": datetime(2024, 1, 1, 0, 0, 1, tzinfo=UTC), **dict.fromkeys("hvfnkbdt")},
]
DDL = "h string, v double, f float, n bigint, k boolean, b binary, d date, t timestamp"
CSV = (
    "ts,h,v,f,n,k,b,d,t,more\n"
    '2024-01-01T00:00:00Z,"",0.1,0.5,1099511627776,true,aGk=,2024-02-29,2024-01-01 01:02:03.456789,x\n'
    "2024-01-01T01:00:01+01:00,,,,,,,,,\n"
)
NDJSON = (
    '{"ts":1704067200000000,"h":"","v":0.1,"f":0.5,"n":1099511627776,"k":true,"b":"aGk=","d":"2024-02-29",'
    '"t":"2024-01-01T01:02:03.456789","more":[1]}\n{"ts":1704067201000000,"h":null}\n'
)


@pytest.mark.parametrize(("name", "text"), [("s.csv", CSV), ("s.ndjson", NDJSON)])
def test_text_files_say_what_parquet_says(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    table = load_inputs(graph(DDL), {"s": tmp_path / name})["s"]
    assert table.to_pylist() == ROWS
    pq.write_table(table, tmp_path / "s.parquet")
    assert load_inputs(graph(DDL), {"s": tmp_path / "s.parquet"})["s"].equals(table)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.csv", "ts,v\n1,nan\n2,-Infinity\n"),
        ("s.jsonl", '{"ts":1,"v":"NaN"}\n{"ts":2,"v":"-Infinity"}\n'),
    ],
)
def test_text_files_hold_what_json_numbers_cannot(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    values = load_inputs(graph("v double"), {"s": tmp_path / name})["s"].column("v").to_pylist()
    assert values[0] != values[0]
    assert values[1] == float("-inf")


@pytest.mark.parametrize(("name", "text"), [("s.csv", "ts,v\n"), ("s.ndjson", "")])
def test_an_empty_stream_is_an_empty_table(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert load_inputs(graph("v double"), {"s": tmp_path / name})["s"].schema == pa.schema(
        {"ts": UTC_US, "v": pa.float64()}
    )


def test_a_table_gets_the_declared_types_and_columns_only():
    table = checked(
        "v double, n int, h string",
        more=[1, 2],
        h=pa.array(["x", "y"]).dictionary_encode(),
        n=pa.array([1.0, None]),
        v=pa.array([3, None], pa.int64()),
        ts=pa.array([1000, 2000], pa.timestamp("ns", "Europe/Paris")),
        arrival=pa.array([5, 5]),
    )
    assert table.schema == pa.schema(
        {"ts": UTC_US, "v": pa.float64(), "n": pa.int32(), "h": pa.string(), "arrival": UTC_US}
    )
    assert table.column("v").to_pylist() == [3.0, None]
    assert table.column("ts").cast(pa.int64()).to_pylist() == [1, 2]


def test_a_time_without_a_zone_is_utc():
    table = checked("v int", ts=pa.array([7], pa.timestamp("us")), v=[1])
    assert table.column("ts").cast(pa.int64()).to_pylist() == [7]


def test_a_column_called_arrival_that_the_query_declares_is_the_users_own():
    table = checked("arrival int", ts=[1, 2], arrival=[9, 3])
    assert table.schema.field("arrival").type == pa.int32()


def test_disorder_is_welcome_where_arrivals_say_the_order():
    table = checked("v int", ts=[5, 3], arrival=[5, 6], v=[1, 2])
    assert table.column("ts").cast(pa.int64()).to_pylist() == [5, 3]


@given(st.lists(st.integers(-(2**31), 2**31), min_size=1, max_size=50), st.data())
def test_the_first_row_that_would_change_is_named(values, data):
    wrong = data.draw(st.integers(0, len(values) - 1))
    values = [v % 1000 for v in values[:wrong]] + [2**31] + values[wrong + 1 :]
    with pytest.raises(
        InputError, match=f"source 's', column 'v', row {wrong + 1}: 2147483648 cannot be int32"
    ):
        checked("v int", ts=[0] * len(values), v=values)


@pytest.mark.parametrize(
    ("ddl", "column", "sentence"),
    [
        ("v int", pa.array([1.5]), "row 1: 1.5 cannot be int32 without loss"),
        ("v float", pa.array([0.1]), "row 1: 0.1 cannot be float without loss"),
        ("v double", pa.array([2**53 + 1]), "row 1: 9007199254740993 cannot be double"),
        ("v int", pa.array(["1"]), "it is string but the query declares int32"),
        ("v int", pa.array([True]), "it is bool but"),
        ("v string", pa.array([1]), "it is int64 but the query declares string"),
        ("v date", pa.array([0], pa.timestamp("us")), "but the query declares date32"),
        ("v timestamp", pa.array([1], pa.timestamp("ns")), "cannot be timestamp"),
    ],
)
def test_a_loss_is_refused(ddl, column, sentence):
    with pytest.raises(InputError, match=sentence):
        checked(ddl, ts=[0], v=column)


def test_float_columns_keep_nan():
    assert checked("v float", ts=[0, 1], v=[float("nan"), None]).column("v").null_count == 1


def test_sources_and_tables_belong_together():
    q = graph("v int")
    with pytest.raises(InputError, match="input 'S': the query has no such source; there are s"):
        check_inputs(q, {"S": pa.table({})})
    with pytest.raises(InputError, match="source 's' has no input"):
        check_inputs(q, {})
    with pytest.raises(InputError, match="expected a pyarrow Table, got dict"):
        check_inputs(q, {"s": {"ts": [1], "v": [1]}})


@given(st.lists(st.integers(0, 20), max_size=20))
def test_rows_come_in_the_order_of_their_arrival(times):
    table = {"ts": pa.array(times, pa.int64()), "v": pa.array([0] * len(times), pa.int64())}
    if times == sorted(times):
        assert len(checked("v int", **table)) == len(times)
    else:
        first = next(i for i, t in enumerate(times) if i and t < times[i - 1])
        with pytest.raises(InputError, match=f"column 'ts', row {first + 1}: it is before the row above"):
            checked("v int", **table)
