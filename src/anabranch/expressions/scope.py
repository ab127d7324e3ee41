"""What an expression is read against, and how readers of its parts find their arguments and fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
from sqlglot import exp

from anabranch.expressions.coercion import Expr, common_type, compare, convert
from anabranch.types import NUMERIC, Column, QueryError

PREFIX = "SELECT "
"""Set before an expression, so that sqlglot takes no column called ``show`` or ``end`` for a statement."""

OUTSIDE = "it is outside the supported expressions (docs/reference/expressions.md)"

SIGNS: dict[type, str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.And: "AND",
    exp.Or: "OR",
    exp.Not: "NOT",
    exp.IntDiv: "DIV",
    exp.ArgMin: "MIN_BY",
    exp.ArgMax: "MAX_BY",
}
COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)
PREDICATES = (*COMPARISONS, exp.Is, exp.In, exp.Like, exp.Escape, exp.Between, exp.Not, exp.And, exp.Or)

Place = Literal["scalar", "outside", "inside"]
"""Where an expression stands: it is scalar, or outside or inside the aggregate functions of an aggregate."""


class Scope(msgspec.Struct, frozen=True):
    """What an expression is read against."""

    text: str
    columns: tuple[Column, ...]
    ts: bool
    place: Place
    readers: Readers

    def read(self, node: exp.Expression) -> Expr:
        reader = self.readers.get(type(node))
        if reader is None:
            raise self.error(node, f"{describe(node)} is not supported", OUTSIDE)
        read, known = reader
        extra = [name for name, given in node.args.items() if given and name not in known]
        if extra:
            raise self.error(node, f"{describe(node)} with '{extra[0]}' is not supported", OUTSIDE)
        return read(self, node)

    def error(self, node: exp.Expression, problem: str, remedy: str) -> QueryError:
        starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
        place = f" at character {min(starts) - len(PREFIX) + 1}" if starts else ""
        return QueryError(f"{problem}{place} of '{self.text}'; {remedy}.")

    def arguments(self, node: exp.Expression, *names: str) -> list[Expr]:
        """The named arguments of a function, all of which must be there."""
        for name in names:
            if node.args.get(name) is None:
                raise self.error(node, f"{describe(node)} lacks an argument", "give it all of them")
        return [self.read(node.args[name]) for name in names]

    def operands(self, node: exp.Expression, *names: str) -> list[Expr]:
        """As ``arguments``; conditions need parentheses, for sqlglot and Spark group them differently."""
        for name in names:
            if isinstance(node.args.get(name), PREDICATES):
                raise self.error(node, "a condition inside a condition", "put the inner one into parentheses")
        return self.arguments(node, *names)

    def want(self, node: exp.Expression, expr: Expr, accepted: Sequence[str]) -> Expr:
        """``expr`` itself if its type is accepted; NULL becomes the last accepted type, 0.5 a double."""
        if expr.type == "void":
            return convert(expr, accepted[-1])
        if expr.type == "decimal" and "double" in accepted:
            return convert(expr, "double")
        if expr.type not in accepted:
            kind = "a number" if set(accepted) == set(NUMERIC) else " or ".join(accepted)
            raise self.error(node, f"{describe(node)} takes {kind}, not {expr.type},", "cast it explicitly")
        return expr

    def compare(self, node: exp.Expression, sign: str, left: Expr, right: Expr) -> Expr:
        result = compare(sign, left, right)
        if result is None:
            raise self.error(
                node, f"{sign} between {left.type} and {right.type}", "cast one side to the type of the other"
            )
        return result

    def unified(self, node: exp.Expression, args: list[Expr], void: str) -> tuple[Expr, ...]:
        """All of ``args`` as their common type; ``void`` if all are NULL."""
        shared = common_type(args)
        if shared is None:
            types = ", ".join(arg.type for arg in args)
            raise self.error(
                node,
                f"{describe(node)} over {types}",
                "cast all of them to one type; 0.5 is a decimal, 0.5D a double",
            )
        return tuple(convert(arg, void if shared == "void" else shared) for arg in args)


Readers = dict[type, tuple[Callable[[Scope, exp.Expression], Expr], tuple[str, ...]]]
"""How to read each kind of node, and which of sqlglot's arguments to it are understood."""


def describe(node: exp.Expression) -> str:
    if isinstance(node, exp.Anonymous):
        return str(node.this).upper()
    sign = SIGNS.get(type(node))
    if sign is None:
        sign = node.sql_name() if isinstance(node, exp.Func) else type(node).__name__.upper()
    return sign


def settled(expr: Expr) -> Expr:
    """For where only NULL or not matters: an undecided type becomes any type."""
    return convert(expr, "double") if expr.type in ("void", "decimal") else expr
