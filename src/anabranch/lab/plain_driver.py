"""Plain Spark Structured Streaming on one query: ``python -m anabranch.lab.plain_driver JOB.json``.

The same session as a site's, with the same settings; the query in Spark's own words, from its checkpoint if
there is one. Ends with the query, which is to be never.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import functions as F

from anabranch.engines.spark.run import Settings
from anabranch.engines.spark.session import session
from anabranch.engines.spark.source import Offset, Place
from anabranch.lab.plain_io import SINK, SOURCE, Into, PlainSink, PlainSource
from anabranch.lab.queries import JOIN_WITHIN, WINDOW
from anabranch.log.server import die_with_parent
from anabranch.streams.batch import TS
from anabranch.streams.punctuation import BEGINNING
from anabranch.types import Column


class Job(msgspec.Struct, frozen=True):
    """``kind``: one of :data:`anabranch.lab.queries.QUERIES`. ``progress``: a file that is told of batches,
    one line of JSON each."""

    kind: str
    query: str
    sources: dict[str, tuple[Column, ...]]
    into: Into
    settings: Settings
    checkpoint: str
    progress: str


def read(spark: Any, job: Job, stream: str) -> Any:
    settings = job.settings
    others = tuple(other for other in job.sources if other != stream)
    taken = Path(job.checkpoint) / "taken"
    taken.mkdir(parents=True, exist_ok=True)
    place = Place(
        url=settings.server.url,
        user=None,
        password=None,
        query=job.query,
        stream=stream,
        columns=job.sources[stream],
        begin=Offset(stream, 0, BEGINNING, None),
        complete_from=BEGINNING,
        others=others,
        marks=False,
        waits=stream == next(iter(job.sources)),
        taken=str(taken),
        batch_bytes=settings.batch_bytes_of(job.kind == "join"),
        along_bytes=settings.along_bytes,
        split_bytes=settings.split_bytes,
        trigger=settings.trigger,
        patience=settings.patience,
    )
    return spark.readStream.format(SOURCE).option("place", msgspec.json.encode(place).decode()).load()


def stateless(frames: dict[str, Any]) -> Any:
    return frames["load"].where("load >= 0").select(TS, "key", F.expr("load * 2").alias("load"))


def aggregate(frames: dict[str, Any]) -> Any:
    end = F.col("window.end")
    return (
        frames["load"]
        .withWatermark(TS, "0 seconds")
        .groupBy(F.window(TS, WINDOW), "key")
        .agg(F.count("*").alias("n"), F.max("load").alias("worst"))
        .select(
            end.alias(TS),
            F.col("window.start").alias("window_start"),
            end.alias("window_end"),
            "key",
            "n",
            "worst",
        )
    )


def join(frames: dict[str, Any]) -> Any:
    left = frames["load"].withWatermark(TS, "0 seconds").alias("l")
    right = frames["rtt"].withWatermark(TS, "0 seconds").alias("r")
    near = f"l.{TS} > r.{TS} - interval {JOIN_WITHIN} and l.{TS} < r.{TS} + interval {JOIN_WITHIN}"
    return left.join(right, F.expr(f"l.key = r.key and {near}")).select(
        F.greatest(f"l.{TS}", f"r.{TS}").alias(TS), F.col("l.key").alias("key"), "load", "ms"
    )


FORMS = {"stateless": stateless, "join": join, "aggregate": aggregate}


def main() -> None:
    die_with_parent()
    job = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Job)
    spark = session(job.settings)
    for each in (PlainSource, PlainSink):
        spark.dataSource.register(each)
    rows = FORMS[job.kind]({stream: read(spark, job, stream) for stream in job.sources})
    running = (
        rows.writeStream.format(SINK)
        .option("into", msgspec.json.encode(job.into).decode())
        .option("checkpointLocation", str(Path(job.checkpoint) / "spark"))
        .outputMode("append")
        .start()
    )
    threading.Thread(target=_report, args=(running, Path(job.progress)), daemon=True).start()
    running.awaitTermination()


def _report(running: Any, path: Path) -> None:
    seen = -1
    with path.open("a", encoding="utf-8") as told:
        while True:
            time.sleep(1.0)
            for each in running._jsq.recentProgress():
                if each.batchId() > seen:
                    seen = each.batchId()
                    told.write(each.json().replace("\n", " ") + "\n")
            told.flush()


if __name__ == "__main__":
    main()
