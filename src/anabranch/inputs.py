"""Reading the tuples of sources from CSV, NDJSON and Parquet files.

In text a timestamp is ISO 8601 (UTC where it names no zone) or whole microseconds, binary is base64, and an
empty CSV field is null (a quoted one is the empty string). Parquet keeps its types, and is cast without loss.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from anabranch.graph import Graph
from anabranch.input_tables import (
    TIMESTAMP,
    HasGraph,
    InputError,
    check_inputs,
    check_names,
    column_types,
    conform,
    convert,
    graph_of,
)

__all__ = ["InputError", "check_inputs", "load_inputs", "ndjson_table", "read_table"]


def load_inputs(
    query: Graph | HasGraph, paths: Mapping[str, str | Path], fetched: Collection[str] = ()
) -> dict[str, pa.Table]:
    """The checked table of each source that is not ``fetched`` in another way, from its ``.csv``, ``.ndjson``
    (``.jsonl``) or ``.parquet`` file."""
    sources = {source.name: source for source in graph_of(query).sources}
    check_names(sources, paths, fetched)
    return {
        name: conform(source, read_table(Path(paths[name]), column_types(source)), str(paths[name]))
        for name, source in sources.items()
        if name in paths
    }


def read_table(path: Path, columns: Mapping[str, pa.DataType]) -> pa.Table:
    """What is in the file; ``columns``: the types of those that text alone does not tell."""
    kinds = {"arrival": TIMESTAMP, **columns}
    try:
        if path.suffix == ".csv":
            return _csv(path, kinds)
        if path.suffix in (".ndjson", ".jsonl"):
            return _ndjson(path, kinds)
        if path.suffix == ".parquet":
            return pa.parquet.ParquetFile(path).read()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); check the path") from None
    except (pa.ArrowException, UnicodeError) as error:
        said = " ".join(str(error).split())
        raise InputError(f"{path}: not a {path.suffix[1:]} file ({said}); correct it") from None
    raise InputError(f"{path}: of what format? the name must end in .csv, .ndjson or .parquet")


def _csv(path: Path, kinds: Mapping[str, pa.DataType]) -> pa.Table:
    table = pa.csv.read_csv(
        path,
        # one thread: only then do the errors name the row
        read_options=pa.csv.ReadOptions(use_threads=False),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(kinds, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    columns = [
        convert(column, kinds[name], _parsed, f"{path}, column {name!r}") if name in kinds else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    return pa.table(columns, names=table.column_names)


def _ndjson(path: Path, kinds: Mapping[str, pa.DataType]) -> pa.Table:
    return ndjson_table(path.read_bytes(), kinds, str(path))


def ndjson_table(data: bytes, kinds: Mapping[str, pa.DataType], where: str) -> pa.Table:
    """The lines of ``data``, each an object, as columns of ``kinds``; an InputError begins with ``where``."""
    rows: list[dict[str, Any]] = []
    names: dict[str, None] = {}
    decoder = msgspec.json.Decoder(dict[str, Any])
    for number, line in enumerate(data.splitlines(), 1):
        try:
            row = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise InputError(f"{where}, row {number}: {error}; each line must be one JSON object") from None
        rows.append(row)
        names |= dict.fromkeys(row)
    if not rows:
        names = dict.fromkeys(name for name in kinds if name != "arrival")
    return pa.table(
        {
            name: _column([row.get(name) for row in rows], kinds[name], f"{where}, column {name!r}")
            for name in names
            if name in kinds
        }
    )


def _column(values: list[Any], kind: pa.DataType, where: str) -> pa.ChunkedArray:
    """JSON values as a column: numbers and truth values as they are, what JSON cannot write from text."""
    native: tuple[type, ...] = (str,)
    t = pa.types
    if t.is_boolean(kind):
        native = (bool,)
    elif t.is_floating(kind):
        native = (int, float)
    elif t.is_integer(kind):
        native = (int,)
    elif t.is_timestamp(kind):
        native = (int, str)
    for i, value in enumerate(values):
        word = t.is_floating(kind) and value in ("NaN", "Infinity", "-Infinity")
        if (
            value is not None
            and not word
            and (not isinstance(value, native) or isinstance(value, bool) != (native == (bool,)))
        ):
            raise InputError(
                f"{where}, row {i + 1}: {value!r} is not {kind}; correct it or declare another type"
            )
    texts = [value if value is None or isinstance(value, str) else repr(value) for value in values]
    if t.is_boolean(kind):
        return pa.chunked_array([pa.array(values, kind)])
    return convert(pa.chunked_array([pa.array(texts, pa.string())]), kind, _parsed, where)


def _parsed(text: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Text as values of another type; raises if any is none."""
    if pa.types.is_binary(kind):
        values = [
            None if value is None else base64.b64decode(value, validate=True) for value in text.to_pylist()
        ]
        return pa.chunked_array([pa.array(values, kind)])
    if not pa.types.is_timestamp(kind):
        return text.cast(kind)
    present = text.drop_null()
    first = present[0].as_py() if len(present) else ""
    if first.lstrip("-").isdigit():
        return text.cast(pa.int64()).cast(kind)
    try:
        return text.cast(kind)
    except pa.ArrowInvalid:
        return text.cast(pa.timestamp("us")).cast(kind)
