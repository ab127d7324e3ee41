"""A streaming source in Python as a user may have one: partitions, an offset in each, as Kafka has them."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition


def append(directory: Path, partition: int, rows: list[dict[str, Any]]) -> None:
    """What a producer does: rows get the next offsets."""
    with (directory / str(partition)).open("a") as log:
        log.write("".join(json.dumps(row) + "\n" for row in rows))


class Range(InputPartition):
    def __init__(self, partition: int, first: int, end: int) -> None:
        self.partition, self.first, self.end = partition, first, end


class Topic(DataSource):
    @classmethod
    def name(cls) -> str:
        return "topic"

    def schema(self) -> str:
        return "partition int, offset bigint, time bigint, host string, load double"

    def streamReader(self, schema: Any) -> "Reader":
        return Reader(Path(self.options["directory"]), int(self.options.get("most", 40)))


class Reader(DataSourceStreamReader):
    def __init__(self, directory: Path, most: int) -> None:
        self.directory, self.most = directory, most

    def _lines(self, partition: str) -> list[str]:
        text = (self.directory / partition).read_text()
        return text[: text.rfind("\n") + 1].splitlines()

    def initialOffset(self) -> dict[str, int]:
        return {path.name: 0 for path in sorted(self.directory.iterdir())}

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:
        start = start or {}
        ends = {name: len(self._lines(name)) for name in self.initialOffset()}
        return {name: min(end, start.get(name, 0) + self.most) for name, end in ends.items()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Range]:
        return [Range(int(name), start.get(name, 0), last) for name, last in end.items()]

    def read(self, partition: Range) -> Iterator[tuple[Any, ...]]:
        lines = self._lines(str(partition.partition))[partition.first : partition.end]
        for offset, line in enumerate(lines, partition.first):
            row = json.loads(line)
            yield partition.partition, offset, row["time"], row["host"], row["load"]


def slowly(frame: Any, batch: int, options: dict[str, str]) -> None:
    """A sink of the user's own, which is killed easily between having written and having said so."""
    frame.write.mode("overwrite").parquet(f"{options['path']}/batch={batch}")
    time.sleep(float(options["seconds"]))
