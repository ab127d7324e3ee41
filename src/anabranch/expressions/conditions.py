"""Comparisons, logic and choice: what yields a boolean, and what depends on one."""

from __future__ import annotations

from sqlglot import exp

from anabranch.expressions import literals
from anabranch.expressions.coercion import NULL, Expr
from anabranch.expressions.scope import COMPARISONS, SIGNS, Readers, Scope, describe, settled
from anabranch.expressions.values import literal


def _comparison(scope: Scope, node: exp.Expression) -> Expr:
    return scope.compare(node, SIGNS[type(node)], *scope.operands(node, "this", "expression"))


def _logic(scope: Scope, node: exp.Expression) -> Expr:
    names = ("this",) if isinstance(node, exp.Not) else ("this", "expression")
    args = tuple(scope.want(node, arg, ("boolean",)) for arg in scope.arguments(node, *names))
    return Expr(SIGNS[type(node)].lower(), "boolean", args)


def _is(scope: Scope, node: exp.Expression) -> Expr:
    if not isinstance(node.args["expression"], exp.Null):
        raise scope.error(node, "IS followed by anything but NULL", "compare with = or <=> instead")
    (value,) = scope.operands(node, "this")
    return Expr("is_null", "boolean", (settled(value),))


def _between(scope: Scope, node: exp.Expression) -> Expr:
    value, low, high = scope.operands(node, "this", "low", "high")
    return Expr(
        "and", "boolean", (scope.compare(node, ">=", value, low), scope.compare(node, "<=", value, high))
    )


def _in(scope: Scope, node: exp.Expression) -> Expr:
    if not node.expressions:
        raise scope.error(node, "IN without a list", "write IN (a, b, c)")
    (value,) = scope.operands(node, "this")
    return Expr("in", "boolean", scope.unified(node, [value, *map(scope.read, node.expressions)], "boolean"))


def _like(scope: Scope, node: exp.Expression) -> Expr:
    escape = "\\"
    like = node
    if isinstance(node, exp.Escape):
        like, mark = node.this, node.args["expression"]
        escape = literal(scope, mark).value if isinstance(mark, exp.Literal) and mark.is_string else ""
        if not isinstance(like, exp.Like) or len(escape) != 1 or escape in "%_":
            raise scope.error(
                node, "ESCAPE", "write LIKE 'pattern' ESCAPE 'c' with one character other than % and _"
            )
    (value,) = scope.operands(like, "this")
    value = scope.want(like, value, ("string",))
    pattern = like.args["expression"]
    if not (isinstance(pattern, exp.Literal) and pattern.is_string):
        raise scope.error(like, "LIKE with anything but a text literal", "write the pattern as a literal")
    regex = literals.like_regex(literal(scope, pattern).value, escape)
    if regex is None:
        raise scope.error(
            like, f"LIKE where '{escape}' precedes neither '%', '_' nor itself", "double it, or set ESCAPE"
        )
    matched = Expr("like", "boolean", (value,), regex)
    return Expr("not", "boolean", (matched,)) if like.args.get("negate") else matched


def _case(scope: Scope, node: exp.Expression) -> Expr:
    subject = scope.read(node.this) if node.this is not None else None
    conditions, results = [], []
    for branch in node.args["ifs"]:
        condition = scope.read(branch.this)
        if subject is not None:
            condition = scope.compare(branch.this, "=", subject, condition)
        conditions.append(scope.want(node, condition, ("boolean",)))
        results.append(scope.read(branch.args["true"]))
    default = node.args.get("default")
    results.append(NULL if default is None else scope.read(default))
    results = list(scope.unified(node, results, "void"))
    if results[0].type == "void":
        return NULL
    args = [arg for pair in zip(conditions, results, strict=False) for arg in pair]
    return Expr("case", results[0].type, (*args, results[-1]))


def _alternatives(scope: Scope, node: exp.Expression) -> Expr:
    """COALESCE, GREATEST, LEAST."""
    args = scope.unified(node, [scope.read(node.this), *map(scope.read, node.expressions)], "void")
    if len(args) == 1 and not isinstance(node, exp.Coalesce):
        raise scope.error(node, f"{describe(node)} of one value", "give it at least two")
    return NULL if args[0].type == "void" else Expr(node.key, args[0].type, args)


_BOTH = ("this", "expression")
READERS: Readers = {
    **dict.fromkeys(COMPARISONS, (_comparison, _BOTH)),
    **dict.fromkeys((exp.And, exp.Or, exp.Not), (_logic, _BOTH)),
    exp.Is: (_is, _BOTH),
    exp.Between: (_between, ("this", "low", "high")),
    exp.In: (_in, ("this", "expressions")),
    exp.Like: (_like, (*_BOTH, "negate")),
    exp.Escape: (_like, _BOTH),
    exp.Case: (_case, ("this", "ifs", "default")),
    exp.Coalesce: (_alternatives, ("this", "expressions")),
    exp.Greatest: (_alternatives, ("this", "expressions", "ignore_nulls")),
    exp.Least: (_alternatives, ("this", "expressions", "ignore_nulls")),
}
