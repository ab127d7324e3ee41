"""A case: everything one simulated run depends on, as one value that can be written to a file and replayed.

The JSON form is meant to be read and edited by hand: inputs stand in it column by column, times in
microseconds, and the doubles that JSON cannot write (NaN, inf) as strings.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa

from anabranch.graph import Graph
from anabranch.plan import Plan
from anabranch.sim.faults import Fault
from anabranch.streams.batch import TIMESTAMP
from anabranch.topology import Topology
from anabranch.types import arrow_type

Klass = Literal["calm", "live", "outage", "loss"]
"""What a case may suffer, and so what it must show.

- ``calm``: no fault. Exact, complete, and no event that tells of a loss.
- ``live``: a live path remains all the time, the lifeline. Exact and complete.
- ``outage``: anything fails for a while, within retention. Exact and complete once paths return.
- ``loss``: beyond retention. Nothing wrong ever arrives, and what is missing is reported.
"""

Setting = int | float | str | bool | None


class CaseError(ValueError):
    """A case file that cannot be read: the sentence says what, where and what to do."""


class Case(msgspec.Struct, frozen=True):
    """One run. ``lifeline`` names, for every source and operator, the replica that a live path takes.
    ``outside``: engines are processes of their own."""

    klass: Klass
    graph: Graph
    inputs: dict[str, pa.Table]
    topology: Topology
    plan: Plan
    lifeline: dict[str, str]
    faults: tuple[Fault, ...] = ()
    seed: int = 0
    settings: dict[str, Setting] = {}
    outside: bool = False


class _Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    klass: Klass
    seed: int
    graph: Graph
    topology: Topology
    plan: Plan
    lifeline: dict[str, str]
    faults: tuple[Fault, ...]
    settings: dict[str, Setting]
    inputs: dict[str, dict[str, list[Any]]]
    outside: bool = False


def to_json(case: Case) -> bytes:
    """The case as JSON; ``from_json`` gives the same case back, every double to the bit."""
    written = _Written(
        klass=case.klass,
        seed=case.seed,
        graph=case.graph,
        topology=case.topology,
        plan=case.plan,
        lifeline=case.lifeline,
        faults=case.faults,
        settings=case.settings,
        inputs={name: _columns(table) for name, table in case.inputs.items()},
        outside=case.outside,
    )
    return msgspec.json.encode(written)


def from_json(data: bytes, where: str = "the case") -> Case:
    """Reads what ``to_json`` wrote; ``where`` names the file in what a CaseError says."""
    try:
        written = msgspec.json.decode(data, type=_Written)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CaseError(f"{where} is not a case that `anabranch fuzz` wrote: {error}.") from None
    sources = {source.name: source for source in written.graph.sources}
    if missing := [name for name in sources if name not in written.inputs]:
        raise CaseError(f"{where}: inputs lack the source {missing[0]!r}; give it a table, empty if need be.")
    if unknown := [name for name in written.inputs if name not in sources]:
        raise CaseError(f"{where}: inputs name {unknown[0]!r}, which is no source of the graph; remove it.")
    inputs = {}
    for name, columns in written.inputs.items():
        types = {"ts": TIMESTAMP, "arrival": TIMESTAMP}
        types |= {column.name: arrow_type(column.type) for column in sources[name].columns}
        inputs[name] = _table(columns, types, f"{where}, inputs of {name!r}")
    return Case(
        klass=written.klass,
        graph=written.graph,
        inputs=inputs,
        topology=written.topology,
        plan=written.plan,
        lifeline=written.lifeline,
        faults=written.faults,
        seed=written.seed,
        settings=written.settings,
        outside=written.outside,
    )


def save(case: Case, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(to_json(case), indent=1) + b"\n")


def load(path: Path) -> Case:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CaseError(f"{path} cannot be read: {error.strerror}; give the path of a case file.") from None
    return from_json(data, str(path))


def _columns(table: pa.Table) -> dict[str, list[Any]]:
    return {name: _values(table[name].combine_chunks()) for name in table.column_names}


def _values(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        return list(column.cast(pa.int64()).to_pylist())
    if pa.types.is_date(column.type):
        return list(column.cast(pa.int32()).to_pylist())
    if pa.types.is_binary(column.type):
        return [None if value is None else value.hex() for value in column.to_pylist()]
    if pa.types.is_floating(column.type):
        return [_number(value) for value in column.to_pylist()]
    return list(column.to_pylist())


def _number(value: float | None) -> float | str | None:
    finite = value is None or float("-inf") < value < float("inf")
    return value if finite else str(value)


def _table(columns: Mapping[str, list[Any]], types: Mapping[str, pa.DataType], where: str) -> pa.Table:
    arrays = {}
    for name, values in columns.items():
        if name not in types:
            raise CaseError(f"{where}: column {name!r} is not declared by the source; remove it.")
        try:
            arrays[name] = _array(values, types[name])
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise CaseError(
                f"{where}, column {name!r}: {error}; write values of type {types[name]}."
            ) from None
    if missing := [name for name in types if name not in arrays and name != "arrival"]:
        raise CaseError(f"{where}: column {missing[0]!r} is missing; add it, one value a row.")
    if len({len(array) for array in arrays.values()}) > 1:
        raise CaseError(f"{where}: the columns differ in length; give every row a value in each, or null.")
    return pa.table(arrays)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).view(kind)
    if pa.types.is_date(kind):
        return pa.array(values, pa.int32()).view(kind)
    if pa.types.is_binary(kind):
        return pa.array([None if value is None else bytes.fromhex(value) for value in values], kind)
    if pa.types.is_floating(kind):
        return pa.array([None if value is None else float(value) for value in values], kind)
    return pa.array(values, kind)
