"""What the driver does for a site's sources and sinks, on a real Spark: refused with a sentence, or written
exactly once by batch."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet
import pytest

from anabranch.engines.spark import fetch
from anabranch.engines.spark.deliver import deliver
from anabranch.engines.spark.fetch import FetchError
from anabranch.engines.spark.formats import FormatError
from anabranch.engines.spark.orders import Deliver, Fetch
from anabranch.engines.spark.run import Server, Settings
from anabranch.engines.spark.session import session
from anabranch.types import Column

pytestmark = pytest.mark.slow
COLUMNS = (Column("host", "string"), Column("load", "double"))
RATE = Fetch(
    fragment="source load",
    query="q",
    stream="load",
    columns=COLUMNS,
    format="rate",
    options={},
    schema=None,
    select=("timestamp as ts", "'all' as part", "value", "'h' as host", "cast(value as double) as load"),
    partition="part",
    number="value",
    timestamp="ts",
    every=0.2,
    checkpoint="",
    run="",
    anew=True,
)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    directory = tmp_path_factory.mktemp("spark")
    with contextlib.chdir(directory):  # where Java leaves its own logs
        made = session(Settings(Server("nats://127.0.0.1:1"), str(directory)))
    yield made
    made.stop()


def written(frame: Any, batch: int, options: dict[str, str]) -> None:
    frame.write.mode("overwrite").json(f"{options['path']}/{batch}")


def test_what_cannot_be_a_source_is_told_in_one_sentence(spark: Any) -> None:
    change = msgspec.structs.replace
    for order, says in (
        (change(RATE, select=()), "there is no column 'part'; there are timestamp timestamp, value bigint"),
        (change(RATE, select=(*RATE.select[:4], "value as load")), "'load' is bigint and should be double"),
        (change(RATE, timestamp="value"), "'value' is bigint and should be timestamp; write 'cast(value as"),
        (change(RATE, number="load"), "column 'load' is double and should be bigint"),
    ):
        with pytest.raises(FetchError) as refused:
            fetch._rows(spark, order)
        assert says in str(refused.value)
        assert "source 'load'" in str(refused.value)
    for format, says in (
        ("nowhere.at_all:Source", "cannot be imported"),
        ("json:loads", "no subclass of pyspark.sql.datasource.DataSource"),
    ):
        with pytest.raises(FormatError, match=says):
            fetch._rows(spark, change(RATE, format=format))
    assert fetch._rows(spark, RATE).columns == ["_partition", "_number", "_ts", "c0", "c1"]


def test_a_run_is_taken_up_again_or_begun_anew_or_refused(tmp_path: Path) -> None:
    change = msgspec.structs.replace
    order = change(RATE, checkpoint=str(tmp_path / "source load"))
    first = fetch.decide(order)
    assert not first.resumed
    again = fetch.decide(change(order, run=first.name))
    assert again.resumed
    assert again.name == first.name
    # Rows that tell what they are: from the beginning, where it is not the same any more.
    other = fetch.decide(change(order, run=first.name, options={"rowsPerSecond": "9"}))
    assert not other.resumed
    assert other.reason == "it is described otherwise than before"
    # Rows that do not.
    kept = fetch.decide(change(order, run=other.name, options={}, anew=False))
    assert kept.resumed
    with pytest.raises(FetchError, match=r"is not in .*nobody knows which of them have been read"):
        fetch.decide(change(order, run=first.name, anew=False))


def rows_in(tmp_path: Path, count: int) -> str:
    path = tmp_path / "rows.arrow"
    table = pa.table(
        {
            "ts": pa.array(range(count), pa.int64()).cast(pa.timestamp("us", "UTC")),
            "_hi": pa.array(range(count), pa.int64()),
            "_lo": pa.array(range(count), pa.int64()),
            "host": pa.array([None if i % 3 == 0 else f"h{i}" for i in range(count)], pa.string()),
        }
    )
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return str(path)


def test_a_batch_that_comes_again_takes_the_place_of_itself(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    path = {"path": f"{out}/batch={{batch}}"}
    order = Deliver("sink a", 7, rows_in(tmp_path, 20), "parquet", path, "overwrite", ())
    for _ in range(2):
        deliver(spark, order)
    deliver(spark, msgspec.structs.replace(order, batch=8, select=("host", "{batch} as number")))
    table = pa.parquet.read_table(out / "batch=7", partitioning=None)
    assert table.num_rows == 20
    assert table["ts"].cast(pa.timestamp("us")).cast(pa.int64()).to_pylist() == list(range(20))
    assert pa.parquet.read_table(out / "batch=8", partitioning=None)["number"].to_pylist() == [8] * 20


def test_a_function_of_the_users_writes_what_it_likes(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "users_own", sys.modules[__name__])
    options = {"path": str(tmp_path / "out")}
    order = Deliver("sink a", 3, rows_in(tmp_path, 5), "users_own:written", options, "append", ())
    for _ in range(2):
        deliver(spark, order)
    assert spark.read.json(str(tmp_path / "out" / "3")).count() == 5


def test_a_table_of_a_database_with_a_column_for_the_batch(spark: Any, tmp_path: Path) -> None:
    """As a target that cannot replace a batch by itself: the column tells which rows came again."""
    options = {
        "url": f"jdbc:derby:{tmp_path / 'base'};create=true",
        "dbtable": "results",
        "driver": "org.apache.derby.jdbc.EmbeddedDriver",
    }
    select = ("_hi", "_lo", "{batch} as batch")
    order = Deliver("sink a", 0, rows_in(tmp_path, 4), "jdbc", options, "append", select)
    deliver(spark, order)
    deliver(spark, msgspec.structs.replace(order, batch=1))
    read = spark.read.format("jdbc").options(**options).load()
    assert sorted(row[0] for row in read.select("BATCH").collect()) == [0] * 4 + [1] * 4
