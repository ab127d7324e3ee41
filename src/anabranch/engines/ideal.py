"""The ideal run: one copy of the query, no failure, no delay. It defines what is correct."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from anabranch.engines.arrow import ArrowEngine
from anabranch.graph import Graph, Source
from anabranch.input_tables import HasGraph, check_inputs, graph_of
from anabranch.operators.windows import sort_by_id
from anabranch.protocols.events import Poisoned
from anabranch.streams.batch import Batch, assemble, concat, ints, with_ids
from anabranch.streams.hashing import source_ids
from anabranch.streams.occurrences import Occurrences
from anabranch.streams.order import sort
from anabranch.streams.punctuation import BEGINNING, END
from anabranch.types import arrow_schema


def ideal(query: Graph | HasGraph, inputs: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """What each output must be: ``ts``, its columns, and the ids ``_hi`` and ``_lo``, in canonical order.

    ``inputs`` has a table for each source: ``ts``, the declared columns, and ``arrival`` if any may be late.

    >>> import anabranch as ab
    >>> q = ab.Query("q")
    >>> q.output("busy", q.source("load", "load double").where("load > 0.5"))
    >>> ideal(q, {"load": pa.table({"ts": [1, 2], "load": [0.1, 0.9]})})["busy"].column("load").to_pylist()
    [0.9]
    """
    graph = graph_of(query)
    streams = ideal_streams(graph, inputs)
    return {output.name: streams[output.stream] for output in graph.outputs}


def ideal_streams(query: Graph | HasGraph, inputs: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Every stream of the ideal run: those of the sources, as accepted, and of the operators."""
    graph = graph_of(query)
    streams = _accepted(graph, inputs)
    schemas = {source.name: with_ids(arrow_schema(source.columns)) for source in graph.sources}
    if graph.operators:
        streams |= _run(ArrowEngine(graph, [o.name for o in graph.operators]), streams)
    schemas |= {o.name: with_ids(arrow_schema(graph.schema(o.name))) for o in graph.operators}
    return {name: as_table(rows, schemas[name]) for name, rows in streams.items()}


def ideal_poison(query: Graph | HasGraph, inputs: Mapping[str, pa.Table]) -> Sequence[Poisoned]:
    """The tuples on which user code raises in the ideal run."""
    graph = graph_of(query)
    engine = ArrowEngine(graph, [o.name for o in graph.operators])
    _run(engine, _accepted(graph, inputs))
    return engine.events()


def _accepted(graph: Graph, inputs: Mapping[str, pa.Table]) -> dict[str, Batch | None]:
    tables = check_inputs(graph, inputs)
    return {source.name: accepted(source, tables[source.name]) for source in graph.sources}


def accepted(source: Source, table: pa.Table) -> Batch | None:
    """The tuples of ``source`` that are not late, with their ids: by the number of the row, its producer
    being the source itself, or by content with multiplicity."""
    rows = table.combine_chunks()
    ts = ints(_column(rows, "ts").view(pa.int64()))
    columns = [_column(rows, column.name) for column in source.columns]
    if not len(ts):
        return None
    if source.identity == "content":
        hi, lo = Occurrences(source.name).ids(ts, columns)
    else:
        hi, lo = source_ids(source.name, source.name, 0, len(ts))
    batch = assemble(ts, hi, lo, columns, with_ids(arrow_schema(source.columns)))
    declared = [column.name for column in source.columns]
    if source.timestamps == "entry" or "arrival" not in rows.column_names or "arrival" in declared:
        return batch
    in_time = ints(_column(rows, "arrival").view(pa.int64())) - ts <= source.lateness
    return batch.filter(pa.array(in_time)) if in_time.any() else None


def _run(engine: ArrowEngine, inputs: Mapping[str, Batch | None]) -> dict[str, Batch | None]:
    engine.start(dict.fromkeys(engine.inputs, BEGINNING))
    yielded: dict[str, list[Batch]] = {stream: [] for stream in engine.outputs}
    for stream in engine.inputs:
        for emission in engine.feed(stream, inputs[stream], END):
            if emission.rows is not None:
                yielded[emission.stream].append(emission.rows)
    return {stream: concat(rows) if rows else None for stream, rows in yielded.items()}


def as_table(rows: Batch | None, schema: pa.Schema) -> pa.Table:
    """In canonical order; what looks equal is in the order of ids."""
    table = schema.empty_table() if rows is None else pa.Table.from_batches([sort(sort_by_id(rows))])
    ts, hi, lo, *columns = table.columns
    names = ["ts", *schema.names[3:], "_hi", "_lo"]
    return pa.table([ts, *columns, hi, lo], names=names)


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
