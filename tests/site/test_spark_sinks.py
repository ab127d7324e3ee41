"""Results written by Spark while the site is killed in the middle of a batch: each in exactly one batch."""

import asyncio
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from embedded import busy_query, loads, rows_of, run
from http_client import PLAN
from test_attached import PAIR
from test_spark_sources import PATIENCE, kill_driver

import anabranch as ab
from anabranch.log.connection import FAILURES
from anabranch.site.cluster import Cluster
from anabranch.site.sinks.settings import ToSpark

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


def batches(directory: Path) -> list[Path]:
    return sorted(directory.glob("batch=*"))


@pytest.mark.parametrize(
    ("format", "options"),
    [("parquet", {"path": "OUT/batch={batch}"}), ("topic:slowly", {"path": "OUT", "seconds": "1"})],
)
def test_each_result_is_in_one_batch(tmp_path: Path, format: str, options: dict[str, str]) -> None:
    query, table = busy_query(), loads(900, 9, 21)
    out = tmp_path / "out"
    options = {name: value.replace("OUT", str(out)) for name, value in options.items()}
    sink = ToSpark("alerts@paris", format, options, "overwrite", every=0.5, rows=60)

    async def work() -> None:
        async with Cluster(query, PAIR, PLAN, tmp_path, sinks=(sink,)) as cluster:
            feeding = asyncio.create_task(cluster.feed({"load": table}, 0.15))

            async def more() -> None:
                before = len(batches(out))
                while len(batches(out)) == before:
                    await asyncio.sleep(0.02)

            await more()
            # It has been begun, and nobody has said that it is written.
            await asyncio.to_thread(cluster.kill_site, "paris")
            cluster.start("paris")
            await more()
            await kill_driver(cluster, "paris")
            await more()
            cluster.kill("paris", "agent")
            await feeding
            while any(name.startswith("sink") for name in await attached(cluster)):
                await asyncio.sleep(0.2)
        got = pa.concat_tables([pa.parquet.read_table(each, partitioning=None) for each in batches(out)])
        # Spark's own timestamps in Parquet are nanoseconds without a zone.
        got = got.set_column(0, "ts", got["ts"].cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC")))
        assert len(batches(out)) > 4
        wanted = ab.ideal(query, {"load": table})["alerts"].drop_columns(["_hi", "_lo"])
        assert rows_of(got.select(wanted.column_names)) == rows_of(wanted)

    run(work(), PATIENCE)


async def attached(cluster: Cluster) -> tuple[str, ...]:
    try:
        return (await cluster.status("paris")).attached
    except FAILURES:  # it is just being started again
        return ("sink?",)
