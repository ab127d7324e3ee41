"""A batch of results, written by Spark wherever Spark can write.

The agent has cut it, numbered it and put it on disk before it tells of it, and tells of it again, the same
rows with the same number, until it knows that it is written. So a write that replaces what the batch wrote
before, or that the target knows by its number, is exactly once.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import pyarrow as pa

from anabranch.engines.spark.formats import imported, is_data_source, registered
from anabranch.engines.spark.orders import Deliver

BATCH = "{batch}"

_alone: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
"""Of each sink: whoever asks again, while a write is still under way, waits for it."""


def deliver(spark: Any, order: Deliver) -> None:
    """Returns when it is written."""
    with _alone[order.fragment]:
        _write(spark, order)


def _write(spark: Any, order: Deliver) -> None:
    with pa.OSFile(order.rows) as file, pa.ipc.open_file(file) as rows:
        frame = spark.createDataFrame(rows.read_all())
    number = str(order.batch)
    if order.select:
        frame = frame.selectExpr(*(each.replace(BATCH, number) for each in order.select))
    options = {name: value.replace(BATCH, number) for name, value in order.options.items()}
    found = imported(order.format)
    if found is not None and not is_data_source(found):
        found(frame, order.batch, options)
        return
    writer = frame.write.format(registered(spark, order.format))
    writer.mode(order.mode).options(**options).save()
