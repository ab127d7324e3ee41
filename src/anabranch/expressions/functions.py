"""Arithmetic and functions of one tuple's values."""

from __future__ import annotations

from sqlglot import exp

from anabranch.expressions.coercion import Expr, common_type, convert
from anabranch.expressions.scope import SIGNS, Readers, Scope, describe
from anabranch.types import INTEGRAL, NUMERIC


def _arithmetic(scope: Scope, node: exp.Expression) -> Expr:
    sign = SIGNS[type(node)]
    left, right = scope.operands(node, "this", "expression")
    shared = common_type((left, right))
    if shared not in NUMERIC:
        if "decimal" in (left.type, right.type) and {left.type, right.type} <= {*INTEGRAL, "decimal"}:
            raise scope.error(
                node,
                f"{sign} between {left.type} and {right.type}",
                "its result would be a decimal; write 0.5D for a double",
            )
        raise scope.error(node, f"{sign} between {left.type} and {right.type}", "cast both sides to a number")
    if sign == "/":
        shared = "double"
    return Expr(sign, shared, (convert(left, shared), convert(right, shared)))


def same_number(scope: Scope, node: exp.Expression) -> Expr:
    (value,) = scope.arguments(node, "this")
    if value.type == "decimal":
        raise scope.error(node, f"{describe(node)} of a decimal", "write 0.5D instead of 0.5")
    value = scope.want(node, value, NUMERIC)
    return Expr(node.key, value.type, (value,))


def _whole(scope: Scope, node: exp.Expression) -> Expr:
    """FLOOR and CEIL."""
    (value,) = scope.arguments(node, "this")
    if value.type == "decimal":
        raise scope.error(node, f"{describe(node)} of a decimal", "write 0.5D instead of 0.5")
    value = scope.want(node, value, NUMERIC)
    return value if value.type == "bigint" else Expr(node.key, "bigint", (convert(value, "double"),))


def _round(scope: Scope, node: exp.Expression) -> Expr:
    value = same_number(scope, node)
    given = node.args.get("decimals")
    digits = Expr("literal", "int", value=0) if given is None else scope.read(given)
    if digits.op != "literal" or digits.type != "int":
        raise scope.error(
            node, "ROUND with a number of digits that is not an int literal", "write ROUND(x, 2)"
        )
    return Expr("round", value.type, value.args, digits.value)


def _doubles(scope: Scope, node: exp.Expression) -> Expr:
    """SQRT and POW."""
    names = ("this", "expression") if isinstance(node, exp.Pow) else ("this",)
    args = (convert(scope.want(node, arg, NUMERIC), "double") for arg in scope.arguments(node, *names))
    return Expr(node.key, "double", tuple(args))


def _text(scope: Scope, node: exp.Expression) -> Expr:
    """LOWER, UPPER, LENGTH."""
    accepted = ("binary", "string") if isinstance(node, exp.Length) else ("string",)
    value = scope.want(node, scope.arguments(node, "this")[0], accepted)
    return Expr(node.key, "int" if isinstance(node, exp.Length) else "string", (value,))


def _substring(scope: Scope, node: exp.Expression) -> Expr:
    names = ("this", "start", "length") if node.args.get("length") is not None else ("this", "start")
    value, *bounds = scope.arguments(node, *names)
    whole = [convert(scope.want(node, bound, ("tinyint", "smallint", "int")), "int") for bound in bounds]
    return Expr("substring", "string", (scope.want(node, value, ("string",)), *whole))


def _concat(scope: Scope, node: exp.Expression) -> Expr:
    if isinstance(node, exp.DPipe):
        args = scope.operands(node, "this", "expression")
    elif not node.args.get("safe"):
        raise scope.error(
            node, "two text literals side by side", "join them, and write \\' for a quote inside one"
        )
    else:
        args = [scope.read(arg) for arg in node.expressions]
    return Expr("concat", "string", tuple(scope.want(node, arg, ("string",)) for arg in args))


_BOTH = ("this", "expression")
READERS: Readers = {
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Mod), (_arithmetic, _BOTH)),
    exp.Div: (_arithmetic, (*_BOTH, "typed", "safe")),
    exp.Abs: (same_number, ("this",)),
    exp.Floor: (_whole, ("this",)),
    exp.Ceil: (_whole, ("this",)),
    exp.Round: (_round, ("this", "decimals")),
    exp.Sqrt: (_doubles, ("this",)),
    exp.Pow: (_doubles, _BOTH),
    exp.Lower: (_text, ("this",)),
    exp.Upper: (_text, ("this",)),
    exp.Length: (_text, ("this",)),
    exp.Substring: (_substring, ("this", "start", "length")),
    exp.Concat: (_concat, ("expressions", "safe")),
    exp.DPipe: (_concat, (*_BOTH, "safe")),
}
