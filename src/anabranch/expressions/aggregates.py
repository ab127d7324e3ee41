"""Functions that fold the tuples of a window."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlglot import exp

from anabranch.expressions.coercion import Expr, convert
from anabranch.expressions.scope import OUTSIDE, Readers, Scope, describe, settled
from anabranch.types import FRACTIONAL, NUMERIC

_FOLDS: dict[type, str] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Min: "min",
    exp.Max: "max",
    exp.Avg: "avg",
    exp.Stddev: "stddev",
    exp.StddevSamp: "stddev",
    exp.ArgMin: "min_by",
    exp.ArgMax: "max_by",
}


def _aggregate(scope: Scope, node: exp.Expression) -> Expr:
    args = [node.this, node.args["expression"]] if node.args.get("expression") is not None else [node.this]
    if args[0] is None or (isinstance(node, exp.ArgMin | exp.ArgMax) and len(args) == 1):
        raise scope.error(node, f"{describe(node)} lacks an argument", "give it all of them")
    if isinstance(node, exp.Count) and isinstance(args[0], exp.Star):
        args = []
    return _fold(scope, node, _FOLDS[type(node)], args)


def _fold(scope: Scope, node: exp.Expression, function: str, nodes: Sequence[exp.Expression]) -> Expr:
    if scope.place == "scalar":
        raise scope.error(
            node,
            f"the aggregate function {function.upper()} where no window is",
            "use it in aggregate() or count_windows()",
        )
    if scope.place == "inside":
        raise scope.error(node, f"{function.upper()} inside an aggregate function", "aggregate in two steps")
    inside = msgspec.structs.replace(scope, place="inside")
    args = tuple(inside.read(arg) for arg in nodes)
    if function == "count":
        return Expr("aggregate", "bigint", tuple(map(settled, args)), function)
    for arg in args:
        if arg.type in ("void", "decimal"):
            raise scope.error(node, f"{function.upper()} of a {arg.type}", "cast it to a type")
    if function in ("sum", "avg", "stddev"):
        value = scope.want(node, args[0], NUMERIC)
        of = "bigint" if function == "sum" and value.type not in FRACTIONAL else "double"
        return Expr("aggregate", of, (convert(value, of),), function)
    return Expr("aggregate", args[0].type, args, function)


def _anonymous(scope: Scope, node: exp.Expression) -> Expr:
    if node.name.lower() == "mean" and len(node.expressions) == 1:
        return _fold(scope, node, "avg", node.expressions)
    raise scope.error(node, f"the function {describe(node)} is not supported", OUTSIDE)


READERS: Readers = {
    **dict.fromkeys(_FOLDS, (_aggregate, ("this", "expression", "big_int"))),
    exp.Anonymous: (_anonymous, ("this", "expressions")),
}
