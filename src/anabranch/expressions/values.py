"""Columns, literals and casts."""

from __future__ import annotations

from sqlglot import exp

from anabranch.expressions import literals
from anabranch.expressions.coercion import NULL, Expr, castable, convert
from anabranch.expressions.functions import same_number
from anabranch.expressions.scope import OUTSIDE, PREFIX, Readers, Scope
from anabranch.types import INTEGRAL, QueryError, did_you_mean

_TYPES = {
    exp.DataType.Type.BOOLEAN: "boolean",
    exp.DataType.Type.TINYINT: "tinyint",
    exp.DataType.Type.SMALLINT: "smallint",
    exp.DataType.Type.INT: "int",
    exp.DataType.Type.BIGINT: "bigint",
    exp.DataType.Type.FLOAT: "float",
    exp.DataType.Type.DOUBLE: "double",
    exp.DataType.Type.TEXT: "string",
    exp.DataType.Type.BINARY: "binary",
    exp.DataType.Type.DATE: "date",
    exp.DataType.Type.TIMESTAMPTZ: "timestamp",
}


def _column_reference(scope: Scope, node: exp.Expression) -> Expr:
    if node.args.get("table") is not None:
        raise scope.error(node, f"column '{node.name}' is qualified by a name", f"write '{node.name}' alone")
    if scope.place == "outside":
        raise scope.error(
            node,
            f"column '{node.name}' outside an aggregate function",
            "columns in `by` are in the output already, others need a function such as max(x)",
        )
    lower = node.name.lower()
    if lower == "ts":
        if scope.ts:
            return Expr("column", "timestamp", value=-1)
        raise scope.error(node, "ts", "a pair has no timestamp of its own yet, so ts cannot be used here")
    for position, column in enumerate(scope.columns):
        if column.name.lower() == lower:
            return Expr("column", column.type, value=position)
    raise _unknown(scope, node)


def _unknown(scope: Scope, node: exp.Expression) -> QueryError:
    names = [column.name for column in scope.columns] + ["ts"] * scope.ts
    guess = did_you_mean(node.name, names)
    return scope.error(
        node, f"there is no column '{node.name}'", f"{guess}the columns are {', '.join(names)}"
    )


def literal(scope: Scope, node: exp.Expression) -> Expr:
    if not node.is_string:
        return _number(scope, node)
    raw = _raw(scope, node)
    value = literals.unescape(raw) if raw else None
    if value is None:
        raise scope.error(node, "a text literal", "write it as one, quoted, with \\' for a quote inside")
    return Expr("literal", "string", value=value)


def _number(scope: Scope, node: exp.Expression, sign: str = "") -> Expr:
    number = literals.number(sign + node.name)
    if number is None:
        raise scope.error(node, f"no type holds the number {node.name}", "write a double, such as 1e-40")
    return number


def _raw(scope: Scope, node: exp.Expression) -> str:
    """A literal as the user wrote it: sqlglot's reading of escapes is not Spark's."""
    start, end = node.meta.get("start"), node.meta.get("end")
    if start is None or end is None:
        return ""
    return str((PREFIX + scope.text)[start : end + 1])


def _constant(scope: Scope, node: exp.Expression) -> Expr:
    return NULL if isinstance(node, exp.Null) else Expr("literal", "boolean", value=bool(node.this))


def _negate(scope: Scope, node: exp.Expression) -> Expr:
    inner = node.this
    if isinstance(inner, exp.Literal) and not inner.is_string:
        return _number(scope, inner, "-")
    if isinstance(inner, exp.TryCast) and _is_number(inner.this):
        return _cast_literal(scope, inner, _number(scope, inner.this, "-"))
    return same_number(scope, node)


def _cast(scope: Scope, node: exp.Expression) -> Expr:
    (value,) = scope.arguments(node, "this")
    if value.op == "literal" and value.type in (*INTEGRAL, "decimal", "string") and value.value is not None:
        return _cast_literal(scope, node, value)
    target = _target(scope, node)
    if not castable(value.type, target):
        raise scope.error(node, f"CAST from {value.type} to {target} is not supported", OUTSIDE)
    return convert(value, target)


def _cast_literal(scope: Scope, node: exp.Expression, literal: Expr) -> Expr:
    """Also 5L, 0.5D, DATE '2024-05-31': to sqlglot, all of them are casts."""
    target = _target(scope, node)
    result = literals.cast(literal, target)
    if result is None:
        raise scope.error(node, f"the literal {literal.value} as {target}", "write one that fits that type")
    return result


def _target(scope: Scope, node: exp.Expression) -> str:
    to = node.args["to"]
    target = _TYPES.get(to.this)
    if target is None or to.expressions:
        raise scope.error(node, f"CAST to {to.sql(dialect='spark')} is not supported", OUTSIDE)
    return target


def _is_number(node: exp.Expression) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string


READERS: Readers = {
    exp.Paren: (lambda scope, node: scope.read(node.this), ("this",)),
    exp.Column: (_column_reference, ("this", "table")),
    exp.Literal: (literal, ("this", "is_string")),
    exp.Boolean: (_constant, ("this",)),
    exp.Null: (_constant, ()),
    exp.Neg: (_negate, ("this",)),
    exp.Cast: (_cast, ("this", "to", "_type")),
    exp.TryCast: (_cast, ("this", "to", "_type")),
}
