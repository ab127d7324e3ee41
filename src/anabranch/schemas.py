"""What an operator yields, given what it is fed; and every reason why it cannot."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from anabranch.durations import LONGEST, check_length
from anabranch.expressions import typecheck, typecheck_aggregate
from anabranch.nodes import (
    Aggregate,
    CountAggregate,
    Custom,
    Filter,
    Join,
    Map,
    Operator,
    Source,
    TopK,
    Union,
)
from anabranch.types import Column, QueryError, check_columns, did_you_mean

Columns = tuple[Column, ...]

WINDOW = (Column("window_start", "timestamp"), Column("window_end", "timestamp"))
"""The first columns of every window's output."""

_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


def find(name: str, columns: Columns, where: str) -> Column:
    """The column called ``name`` in upper, lower or mixed case."""
    for column in columns:
        if column.name.lower() == name.lower():
            return column
    names = [column.name for column in columns]
    guess = did_you_mean(name, names)
    raise QueryError(f"{where}: there is no column '{name}'; {guess}the columns are {', '.join(names)}.")


def joined(left: Columns, right: Columns, on: Sequence[str]) -> Columns:
    """Of a join: the left side's columns, then the right side's but ``on``, a clash as ``right_NAME``."""
    taken = {column.name.lower() for column in left}
    keys = {name.lower() for name in on}
    rest = (column for column in right if column.name.lower() not in keys)
    return left + tuple(
        Column(f"right_{column.name}", column.type) if column.name.lower() in taken else column
        for column in rest
    )


def source_schema(source: Source) -> Columns:
    where = f"source '{source.name}'"
    if not source.columns:
        raise QueryError(f"{where} has no columns; declare at least one.")
    check_columns(source.columns, where)
    if not 0 <= source.lateness <= LONGEST:
        raise QueryError(f"{where}, lateness: it must lie between zero and a thousand years.")
    if source.timestamps == "entry" and source.lateness:
        raise QueryError(f"{where}, lateness: what the entry point stamps is never late; leave lateness out.")
    if source.timestamps == "entry" and source.identity != "sequence":
        raise QueryError(
            f"{where}, identity: each entry point would stamp a tuple differently, so its {source.identity} "
            'does not identify it; use identity="sequence" or timestamps="source".'
        )
    return source.columns


def output_schema(operator: Operator, inputs: Sequence[Columns]) -> Columns:
    """The user columns that ``operator`` yields, fed with streams of these columns; else a QueryError."""
    where = f"operator '{operator.name}'"
    columns = _SCHEMAS[type(operator)](operator, inputs, where)
    check_columns(columns, where)
    return columns


def _filter(operator: Filter, inputs: Sequence[Columns], where: str) -> Columns:
    _check_predicate(operator.predicate, inputs[0], f"{where}, predicate", ts=True)
    return inputs[0]


def _check_predicate(predicate: str, columns: Columns, where: str, *, ts: bool) -> None:
    kind = typecheck(predicate, columns, where, ts=ts)
    if kind != "boolean":
        raise QueryError(f"{where}: '{predicate}' is {kind}, not boolean; compare it with something.")


def _map(operator: Map, inputs: Sequence[Columns], where: str) -> Columns:
    if not operator.columns:
        raise QueryError(
            f"{where} computes no column; name at least one, such as select(x='a + b'). "
            "A column called name goes into a mapping: select({'name': 'a + b'})."
        )
    return tuple(
        Column(name, typecheck(expr, inputs[0], f"{where}, column '{name}'"))
        for name, expr in operator.columns
    )


def _union(operator: Union, inputs: Sequence[Columns], where: str) -> Columns:
    if len(inputs) < 2:
        raise QueryError(f"{where} has {len(inputs)} input; a union needs at least two.")
    first = inputs[0]
    for name, other in zip(operator.inputs[1:], inputs[1:], strict=True):
        if other != first:
            raise QueryError(
                f"{where}: '{operator.inputs[0]}' has columns {_ddl(first)}, but '{name}' has {_ddl(other)}; "
                "bring them into one form with select()."
            )
    return first


def _ddl(columns: Columns) -> str:
    return "(" + ", ".join(f"{column.name} {column.type}" for column in columns) + ")"


def _join(operator: Join, inputs: Sequence[Columns], where: str) -> Columns:
    left, right = inputs
    check_length(operator.within, f"{where}, within")
    _check_distinct(operator.on, f"{where}, on")
    for name in operator.on:
        ours = find(name, left, f"{where}, on, left side '{operator.left}'")
        theirs = find(name, right, f"{where}, on, right side '{operator.right}'")
        if ours.type != theirs.type:
            raise QueryError(
                f"{where}, on: column '{name}' is {ours.type} on the left and {theirs.type} on the right; "
                "cast one of them with select()."
            )
    columns = joined(left, right, operator.on)
    check_columns(columns, where)
    if operator.where is not None:
        _check_predicate(operator.where, columns, f"{where}, where", ts=False)
    return columns


def _aggregate(operator: Aggregate, inputs: Sequence[Columns], where: str) -> Columns:
    _check_window(operator.window, operator.every, where)
    return _grouped(operator, inputs[0], where)


def _count_aggregate(operator: CountAggregate, inputs: Sequence[Columns], where: str) -> Columns:
    for name, number in (("count", operator.count), ("every", operator.every)):
        _check_number(number, f"{where}, {name}")
    return _grouped(operator, inputs[0], where)


def _grouped(operator: Aggregate | CountAggregate, columns: Columns, where: str) -> Columns:
    if not operator.aggregates:
        raise QueryError(f"{where} has no aggregate; name at least one, such as n='count(*)'.")
    groups = _groups(operator.by, columns, where)
    values = tuple(
        Column(name, typecheck_aggregate(expr, columns, f"{where}, column '{name}'"))
        for name, expr in operator.aggregates
    )
    return _windowed((*groups, *values), where)


def _top_k(operator: TopK, inputs: Sequence[Columns], where: str) -> Columns:
    _check_window(operator.window, operator.every, where)
    _check_number(operator.k, f"{where}, k")
    typecheck(operator.by, inputs[0], f"{where}, by")
    return _windowed(inputs[0], where)


def _custom(operator: Custom, inputs: Sequence[Columns], where: str) -> Columns:
    if not _TARGET.fullmatch(operator.target):
        raise QueryError(f"{where}: '{operator.target}' is not a target; write it as 'package.module:name'.")
    if not operator.columns:
        raise QueryError(f"{where} has no columns; declare what '{operator.target}' yields.")
    if operator.window is None:
        if operator.every is not None or operator.by:
            raise QueryError(f"{where}: 'every' and 'by' need a window; give one, or leave them out.")
        return operator.columns
    _check_window(operator.window, operator.window if operator.every is None else operator.every, where)
    return _windowed((*_groups(operator.by, inputs[0], where), *operator.columns), where)


def _groups(by: Sequence[str], columns: Columns, where: str) -> Columns:
    _check_distinct(by, f"{where}, by")
    return tuple(find(name, columns, f"{where}, by") for name in by)


def _check_distinct(names: Sequence[str], where: str) -> None:
    lower = [name.lower() for name in names]
    for name in names:
        if lower.count(name.lower()) > 1:
            raise QueryError(f"{where}: column '{name}' is there twice; name it once.")


def _windowed(columns: Columns, where: str) -> Columns:
    for column in columns:
        if column.name.lower() in ("window_start", "window_end"):
            raise QueryError(
                f"{where}: a window's output has a column '{column.name.lower()}' of its own; "
                "rename or leave out the one of that name with select() first."
            )
    return WINDOW + columns


def _check_window(window: int, every: int, where: str) -> None:
    check_length(window, f"{where}, window")
    check_length(every, f"{where}, every")


def _check_number(number: int, where: str) -> None:
    if not 0 < number < 2**31:
        raise QueryError(
            f"{where}: {number} is not a number of tuples; give a whole number from 1 to 2147483647."
        )


_SCHEMAS: dict[type, Callable[[Any, Sequence[Columns], str], Columns]] = {
    Filter: _filter,
    Map: _map,
    Union: _union,
    Join: _join,
    Aggregate: _aggregate,
    CountAggregate: _count_aggregate,
    TopK: _top_k,
    Custom: _custom,
}
