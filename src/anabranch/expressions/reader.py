"""From the text of an expression to a typed one, or to a sentence that says why not.

What is accepted means exactly what it means in Spark 4 with ``spark.sql.ansi.enabled=false`` and the session
in UTC; what is not is refused by name and place. ``docs/reference/expressions.md`` lists all of it.

>>> columns = (Column("host", "string"), Column("load", "double"), Column("n", "int"))
>>> typecheck("load > 0.5 AND host LIKE 'eu-%'", columns, "operator 'busy', predicate")
'boolean'
>>> typecheck("n / 2", columns, "operator 'half', column 'x'")
'double'
>>> typecheck_aggregate("max(load) - min(load)", columns, "operator 'range', column 'x'")
'double'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, cast

import sqlglot
from sqlglot import exp

from anabranch.expressions import aggregates, conditions, functions, values
from anabranch.expressions.coercion import Expr
from anabranch.expressions.scope import PREFIX, Place, Readers, Scope
from anabranch.types import Column, QueryError

_READERS: Readers = {**values.READERS, **conditions.READERS, **functions.READERS, **aggregates.READERS}
_LONGEST = 10_000
_DEEPEST = 200
"""Levels of nesting: each costs stack when the expression runs, possibly deep inside a simulation."""


def typecheck(expr: str, columns: Sequence[Column], where: str, *, ts: bool = True) -> str:
    """The Spark type of a scalar expression; a QueryError that begins with ``where`` if it has none."""
    return _named(where, lambda: read_scalar(expr, tuple(columns), ts=ts)).type


def typecheck_aggregate(expr: str, columns: Sequence[Column], where: str) -> str:
    """The Spark type of an aggregate expression; a QueryError that begins with ``where`` if it has none."""
    return _named(where, lambda: read_aggregate(expr, tuple(columns))).type


def _named(where: str, read: Callable[[], Expr]) -> Expr:
    try:
        return read()
    except QueryError as error:
        raise QueryError(f"{where}: {error}") from None


@lru_cache(maxsize=4096)
def read_scalar(expr: str, columns: tuple[Column, ...], *, ts: bool = True) -> Expr:
    """The typed expression; ``ts`` says whether the tuple's own timestamp can be named."""
    return _read(expr, columns, ts, "scalar")


@lru_cache(maxsize=4096)
def read_aggregate(expr: str, columns: tuple[Column, ...]) -> Expr:
    """The typed expression, in which nodes with op ``aggregate`` fold the tuples of a window."""
    typed = _read(expr, columns, True, "outside")
    if not _folds(typed):
        raise QueryError(f"'{expr}' contains no aggregate function; use one, such as count(*) or max(x).")
    return typed


def _folds(expr: Expr) -> bool:
    return expr.op == "aggregate" or any(map(_folds, expr.args))


def _read(expr: str, columns: tuple[Column, ...], ts: bool, place: Place) -> Expr:
    _check_text(expr)
    scope = Scope(expr, columns, ts, place, _READERS)
    too_deep = QueryError("the expression is nested too deeply; compute parts of it with select() first.")
    try:
        typed = scope.read(_parse(expr))
    except RecursionError:
        raise too_deep from None
    if _depth(typed) > _DEEPEST:
        raise too_deep
    if typed.type == "void":
        raise QueryError(f"'{expr}' is NULL and has no type; write CAST(NULL AS double) or the like.")
    if typed.type == "decimal":
        raise QueryError(
            f"'{expr}' is a decimal in Spark, which is not supported; write {expr.strip()}D for a double."
        )
    return typed


def _depth(expr: Expr) -> int:
    return 1 + max(map(_depth, expr.args), default=0)


def _check_text(expr: str) -> None:
    if not isinstance(expr, str):
        raise QueryError(f"an expression is a string in SQL, not {expr!r}.")
    if not expr.strip():
        raise QueryError("the expression is empty; write one in SQL, such as 'load > 0.5'.")
    if len(expr) > _LONGEST:
        raise QueryError(
            f"the expression is longer than {_LONGEST} characters; compute parts of it with select() first."
        )
    try:
        expr.encode()
    except UnicodeEncodeError:
        raise QueryError(
            f"the expression {expr!r} has half a surrogate pair; write whole characters."
        ) from None


def _parse(expr: str) -> exp.Expression:
    try:
        statement = sqlglot.parse_one(PREFIX + expr, dialect="spark")
    except RecursionError:
        raise
    except (
        Exception
    ) as error:  # sqlglot's own errors, and what else it stumbles over in a text that is not SQL
        reasons = getattr(error, "errors", None)
        place = f": it breaks off or goes wrong near character {_position(reasons[0])}" if reasons else ""
        raise QueryError(f"'{expr}' is not an expression in Spark's SQL{place}.") from None
    clauses = [name for name, given in statement.args.items() if given and name != "expressions"]
    if not isinstance(statement, exp.Select) or clauses or len(statement.expressions) != 1:
        raise QueryError(f"'{expr}' is not one SQL expression; write a single one, without clauses.")
    return cast(exp.Expression, statement.expressions[0])


def _position(reason: dict[str, Any]) -> int:
    return max(1, int(reason.get("col") or 0) - len(PREFIX))
