"""One fragment as one streaming query of Spark's: ingress logs in, handover to the agent out.

What the source yields beside the tuples, a row that is nothing but a punctuation, must reach the node of the
watermark and go no further. So directly behind that node stands a filter that the optimizer cannot see
through; without it, it would push what it knows of later operators in front of the watermark, and the
punctuation would vanish without an error. That this has not happened is checked before the query starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import functions as F

from anabranch.engines.spark import source
from anabranch.engines.spark.compile import compile_operators
from anabranch.engines.spark.forms import Context
from anabranch.engines.spark.promises import Promise
from anabranch.engines.spark.run import Run, Settings
from anabranch.engines.spark.sink import EXPORT, Export, HandoverSink, Target
from anabranch.engines.spark.source import Offset, Place
from anabranch.engines.spark.times import MARK
from anabranch.engines.spark.user_code import Reports
from anabranch.graph import Aggregate, CountAggregate, Custom, Graph, Join, TopK
from anabranch.protocols.cuts import way, windowed
from anabranch.streams.batch import HI, LO, TS
from anabranch.streams.punctuation import BEGINNING

_BARRIER = f"CASE WHEN spark_partition_id() >= 0 THEN {MARK} IS NULL ELSE false END"


class Inexact(ValueError):
    """A fragment that Spark would not run exactly."""


def inputs_of(graph: Graph, operators: Sequence[str]) -> tuple[str, ...]:
    """The streams that ``operators`` take in from outside, in the order in which they are named."""
    return tuple(
        dict.fromkeys(
            stream
            for operator in graph.operators
            if operator.name in operators
            for stream in operator.inputs
            if stream not in operators
        )
    )


def start_query(spark: Any, run: Run, name: str, life: str, settings: Settings) -> Any:
    """The streaming query of ``run``, under way. ``name`` is the run's own; ``life`` the driver's. The
    checkpoint is used as it is found."""
    graph = Graph.from_json(bytes(run.graph))
    chosen = way(graph, run.operators)
    if chosen is None:
        raise Inexact(
            f"operators {list(run.operators)} cannot be one fragment of Spark's: windows and joins follow "
            "each other in a way that is not exact; cut them as anabranch.protocols.cuts says"
        )
    # A query keeps the settings that the session has when it starts. Where each operator has a watermark of
    # its own, Spark looks for it below the operator, and sees none behind an exchange that is used again.
    spark.conf.set("spark.sql.streaming.statefulOperator.allowMultiple", str(chosen == "each").lower())
    spark.conf.set("spark.sql.exchange.reuse", str(chosen == "one").lower())
    server = settings.server
    reports = Reports(server.url, server.user, server.password, graph.name, run.fragment, name)
    context = Context(graph, run.complete_from, settings.salts, reports=reports)
    streams = inputs_of(graph, run.operators)
    timed = any(_has_state(graph, name) for name in run.operators)
    frames = {stream: _read(spark, graph, run, stream, streams, timed, settings) for stream in streams}
    made = compile_operators(run.operators, frames, context)
    exports = _exports(graph, run.operators, run.exports)
    rows = reduce(lambda one, other: one.union(other), _tagged(made, exports))
    if timed:
        _check(rows, len(streams))
    target = Target(
        server.url,
        server.user,
        server.password,
        graph.name,
        run.fragment,
        name,
        life,
        str(spark_checkpoint(run)),
        settings.along_bytes,
        exports,
    )
    return (
        rows.writeStream.foreachBatch(HandoverSink(target))
        .option("checkpointLocation", str(spark_checkpoint(run)))
        .outputMode("append")
        .queryName(run.fragment)
        .start()
    )


def spark_checkpoint(run: Run) -> Path:
    return Path(run.checkpoint) / "spark"


def _read(
    spark: Any,
    graph: Graph,
    run: Run,
    stream: str,
    streams: tuple[str, ...],
    timed: bool,
    settings: Settings,
) -> Any:
    """Punctuation goes along only where something closes or evicts by it: ``timed``."""
    taken = Path(run.checkpoint) / "taken"
    taken.mkdir(parents=True, exist_ok=True)
    start = run.inputs[stream]
    server = settings.server
    place = Place(
        server.url,
        server.user,
        server.password,
        graph.name,
        stream,
        graph.schema(stream),
        Offset(stream, start.first, BEGINNING, None),
        max(start.complete_from, start.high),
        tuple(other for other in streams if other != stream),
        timed,
        stream == streams[0],
        str(taken),
        settings.batch_bytes_of(any(isinstance(graph.node(name), Join) for name in run.operators)),
        settings.along_bytes,
        settings.split_bytes,
        settings.trigger,
        settings.patience,
    )
    rows = spark.readStream.format(source.NAME).option("place", msgspec.json.encode(place).decode()).load()
    return rows.withWatermark(MARK, "0 seconds").filter(_BARRIER).drop(MARK) if timed else rows


def _has_state(graph: Graph, operator: str) -> bool:
    return isinstance(graph.node(operator), Join | CountAggregate) or windowed(graph, operator)


def _exports(graph: Graph, operators: Sequence[str], streams: Sequence[str]) -> tuple[Export, ...]:
    """The user columns of each stand side by side: a row has those of its own stream, the others are null."""
    promises = _promises(graph, operators)
    exports = []
    at = 4
    for stream in streams:
        columns = graph.schema(stream)
        exports.append(Export(stream, columns, at, promises[stream]))
        at += len(columns)
    return tuple(exports)


def _promises(graph: Graph, operators: Sequence[str]) -> dict[str, Promise]:
    known: dict[str, Promise] = {}
    for operator in graph.operators:
        if operator.name not in operators:
            continue
        above = [known.get(stream) or Promise((stream,), False, True) for stream in operator.inputs]
        closes = windowed(graph, operator.name) or isinstance(operator, CountAggregate)
        known[operator.name] = Promise(
            tuple(dict.fromkeys(stream for each in above for stream in each.inputs)),
            closes or any(each.windowed for each in above),
            all(each.whole for each in above) and not _between_milliseconds(operator),
        )
    return known


def _between_milliseconds(operator: Any) -> bool:
    """Whether what the watermark releases here may end between two whole milliseconds."""
    if isinstance(operator, Aggregate | TopK):
        return operator.every % 1_000 != 0
    if isinstance(operator, Custom) and operator.window is not None:
        return (operator.every or operator.window) % 1_000 != 0
    return isinstance(operator, CountAggregate)


def _tagged(made: Mapping[str, Any], exports: tuple[Export, ...]) -> list[Any]:
    """The rows of every export, all with the same columns, the first of which numbers the export if there are
    several."""
    if len(exports) == 1:
        (only,) = exports
        typed = (F.col(column.name).cast(column.type).alias(column.name) for column in only.columns)
        return [made[only.stream].select(TS, HI, LO, *typed)]
    return [
        made[export.stream].select(
            F.lit(number).cast("tinyint").alias(EXPORT),
            TS,
            HI,
            LO,
            *(
                (F.col(column.name) if other is export else F.lit(None)).cast(column.type).alias(f"c{n}")
                for other in exports
                for n, column in enumerate(other.columns, other.at)
            ),
        )
        for number, export in enumerate(exports)
    ]


def _check(rows: Any, inputs: int) -> None:
    """No filter has come between a source and its watermark, and every source has kept its own."""
    plan = rows._jdf.queryExecution().optimizedPlan().treeString()
    marked: int | None = None
    found = 0
    for line in plan.splitlines():
        depth = len(line) - len(line.lstrip(" :+-~"))
        node = line[depth:]
        if marked is not None and depth <= marked:
            marked = None
        if node.startswith("EventTimeWatermark"):
            marked, found = depth, found + 1
        elif marked is not None and node.startswith(("Filter", "LocalRelation")):
            raise Inexact(
                "Spark's optimizer has put a filter in front of a watermark, where it would swallow "
                f"punctuations: {node}; report this with the query"
            )
    if found < inputs:
        raise Inexact(f"Spark's optimizer has dropped a watermark: {found} of {inputs} are left:\n{plan}")
