"""SQL expressions executed over Arrow batches: the documented subset, with exactly Spark's meaning.

>>> columns = (Column("host", "string"), Column("load", "double"))
>>> names = ["_ts", "_hi", "_lo", "host", "load"]
>>> batch = pa.record_batch([[0, 0], [1, 2], [3, 4], ["a", "b"], [0.25, None]], names)
>>> compile_scalar("upper(host) || '!'", columns)(batch).to_pylist()
['A!', 'B!']
>>> compile_predicate("load > 0", columns)(batch).tolist()
[True, False]
>>> aggregation = compile_aggregates((("n", "count(load)"), ("top", "max_by(host, load)")), columns)
>>> [column.to_pylist() for column in aggregation.apply(batch, np.zeros(2, np.int64), 1)]
[[1], ['a']]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.expressions import Expr, read_aggregate, read_scalar
from anabranch.operators import numbers, text, vectors
from anabranch.operators.folds import fold
from anabranch.types import FRACTIONAL, Column, QueryError

IDS = 3
"""The columns before the user's own: timestamp and lineage id."""

Scalar = Callable[[pa.RecordBatch], pa.Array]
Predicate = Callable[[pa.RecordBatch], npt.NDArray[np.bool_] | None]
Node = Callable[[Any], Any]
Apply = Callable[..., Any]


def compile_scalar(expr: str, columns: tuple[Column, ...]) -> Scalar:
    """From a batch, id columns first, to the expression's values, in the declared order of rows."""
    typed = read_scalar(expr, columns)
    if typed.op == "column":
        position = typed.value + IDS if typed.value >= 0 else 0
        return lambda batch: batch.column(position)
    node = _quiet(typed, _compile(typed, _from_batch))
    store = _store(typed.type)
    return lambda batch: store(node(batch), batch.num_rows)


def compile_predicate(expr: str, columns: tuple[Column, ...]) -> Predicate:
    """From a batch, id columns first, to the rows for which the expression is true; None: for all of them."""
    typed = read_scalar(expr, columns)
    if typed.type != "boolean":
        raise QueryError(f"'{expr}' is {typed.type}, not boolean; compare it with something.")
    node = _quiet(typed, _compile(typed, _from_batch))

    def predicate(batch: pa.RecordBatch) -> npt.NDArray[np.bool_] | None:
        passed = vectors.known(node(batch))
        if passed.all():
            return None
        return passed if len(passed) == batch.num_rows else np.zeros(batch.num_rows, np.bool_)

    return predicate


class Aggregation:
    """Aggregate expressions, computed together: a fold that two of them share is done once."""

    def __init__(self, aggregates: tuple[tuple[str, str], ...], columns: tuple[Column, ...]) -> None:
        self._folds: list[tuple[str, list[Node]]] = []
        self._results: list[tuple[Node, Callable[[Any, int], pa.Array]]] = []
        self._places: dict[Expr, int] = {}
        declared = []
        for name, expr in aggregates:
            typed = read_aggregate(expr, columns)
            self._results.append((_compile(typed, self._from_folds), _store(typed.type)))
            declared.append(Column(name, typed.type))
        self.columns: tuple[Column, ...] = tuple(declared)

    def apply(self, batch: pa.RecordBatch, group: npt.NDArray[np.int64], groups: int) -> list[pa.Array]:
        """One value per group for each aggregate.

        ``group[i]`` is the group of row i, from 0 to ``groups`` - 1, none of them empty. Rows are folded in
        the order given, and of equal candidates the first wins.
        """
        with np.errstate(all="ignore"):
            folded = [
                fold(function, [node(batch) for node in nodes], group, groups)
                for function, nodes in self._folds
            ]
            return [store(node(folded), groups) for node, store in self._results]

    def _from_folds(self, expr: Expr) -> Node:
        place = self._places.get(expr)
        if place is None:
            place = self._places[expr] = len(self._folds)
            self._folds.append((expr.value, [_compile(arg, _from_batch) for arg in expr.args]))
        return lambda folded: folded[place]


def compile_aggregates(aggregates: tuple[tuple[str, str], ...], columns: tuple[Column, ...]) -> Aggregation:
    return Aggregation(aggregates, columns)


def _from_batch(expr: Expr) -> Node:
    position = expr.value + IDS if expr.value >= 0 else 0
    if _is_text(expr):
        return lambda batch: batch.column(position)
    dtype = vectors.DTYPE[expr.type]
    from_arrow = vectors.from_arrow
    return lambda batch: from_arrow(batch.column(position), dtype)


def _is_text(expr: Expr) -> bool:
    return expr.type in ("string", "binary")


def _store(type_name: str) -> Callable[[Any, int], pa.Array]:
    if type_name in ("string", "binary"):
        return text.spread
    return lambda vector, rows: vectors.to_arrow(vector, rows, type_name)


def _quiet(expr: Expr, node: Node) -> Node:
    """``node`` without numpy's warnings, where it could give any: Spark wraps, or takes NaN or null."""
    if not _may_warn(expr):
        return node

    def quiet(source: Any) -> Any:
        with np.errstate(all="ignore"):
            return node(source)

    return quiet


def _may_warn(expr: Expr) -> bool:
    floating = any(part.type in FRACTIONAL for part in (expr, *expr.args))
    computed = expr.op not in ("column", "literal", "case", "coalesce", "in", *_COMPARISONS)
    return (computed and floating) or expr.op == "%" or any(map(_may_warn, expr.args))


def _compile(expr: Expr, leaf: Callable[[Expr], Node]) -> Node:
    if expr.op in ("column", "aggregate"):
        return leaf(expr)
    if expr.op == "literal":
        return _fixed(_literal(expr))
    nodes = [_compile(arg, leaf) for arg in expr.args]
    apply = _operation(expr)
    if _is_constant(expr):
        with np.errstate(all="ignore"):
            value = apply(*(node(None) for node in nodes))
        return _fixed(value[0] if isinstance(value, pa.Array) else value)
    if len(nodes) == 1:
        (only,) = nodes
        return lambda source: apply(only(source))
    if len(nodes) == 2:
        left, right = nodes
        return lambda source: apply(left(source), right(source))
    return lambda source: apply(*[node(source) for node in nodes])


def _fixed(value: Any) -> Node:
    return lambda _: value


def _is_constant(expr: Expr) -> bool:
    return expr.op not in ("column", "aggregate") and all(map(_is_constant, expr.args))


def _literal(expr: Expr) -> Any:
    if _is_text(expr):
        return text.scalar(expr.value, expr.type)
    if expr.type == "float" and isinstance(expr.value, str):
        return vectors.constant(text.narrow(expr.value), "float")
    return vectors.constant(expr.value, expr.type)


_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "<=>")
_SWAPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_WRAPPING: dict[str, Callable[[Any, Any], Any]] = {"+": np.add, "-": np.subtract, "*": np.multiply}
_OPERATIONS: dict[str, Apply] = {
    **{sign: vectors.strict(function) for sign, function in _WRAPPING.items()},
    "/": vectors.divide(np.divide),
    "%": vectors.divide(np.fmod),
    "neg": vectors.elementwise(np.negative),
    "abs": vectors.elementwise(np.abs),
    "and": vectors.conjunction,
    "or": vectors.disjunction,
    "not": vectors.negation,
    "sqrt": vectors.elementwise(np.sqrt),
    "pow": vectors.strict(numbers.power),
    "floor": vectors.elementwise(lambda values: numbers.saturate(np.floor(values), "bigint")),
    "ceil": vectors.elementwise(lambda values: numbers.saturate(np.ceil(values), "bigint")),
    "lower": text.mapped(str.lower),
    "upper": text.mapped(str.upper),
    "length": text.length,
    "substring": text.substring,
    "concat": text.concat,
}
_TEXT_OPERATIONS: dict[str, Apply] = {
    "case": text.choose,
    "coalesce": pc.coalesce,
    "greatest": pc.max_element_wise,
    "least": pc.min_element_wise,
}


def _operation(expr: Expr) -> Apply:
    """What computes ``expr`` from the values of its arguments."""
    op, args = expr.op, expr.args
    if op in _OPERATIONS:
        return _OPERATIONS[op]
    if op in _COMPARISONS:
        return _comparison(op, args[0], args[1])
    if op == "in":
        return partial(vectors.membership, _comparison("=", args[0], args[0]))
    if op == "is_null":
        return text.is_null if _is_text(args[0]) else vectors.is_null
    if op == "like":
        return text.like(expr.value)
    if op == "round":
        return numbers.rounding(expr.type, expr.value)
    if op == "cast":
        return _cast(args[0].type, expr.type)
    if _is_text(expr):
        return _TEXT_OPERATIONS[op]
    if op in ("greatest", "least"):
        return vectors.extreme(vectors.comparison(">" if op == "greatest" else "<", expr.type))
    return {"case": vectors.choose, "coalesce": vectors.coalesce}[op]


def _comparison(op: str, left: Expr, right: Expr) -> Apply:
    if _is_text(left):
        if op == "<=>":
            return vectors.null_safe(text.comparison("="))
        return text.comparison(op)
    if left.op == "literal" and right.op != "literal":
        mirrored = _comparison(_SWAPPED.get(op, op), right, left)
        return lambda a, b: mirrored(b, a)
    plain = right.op == "literal" and right.value is not None and right.value == right.value
    return vectors.comparison(op, left.type, plain=plain)


def _cast(source: str, target: str) -> Apply:
    if source == "string":
        return text.to_binary if target == "binary" else text.to_vector(target)
    if target == "string":
        return lambda vector: text.from_vector(vector, source)
    return numbers.cast(source, target)
