"""SQL expressions in Spark's dialect: read, checked against columns, typed."""

from anabranch.expressions.coercion import Expr
from anabranch.expressions.reader import read_aggregate, read_scalar, typecheck, typecheck_aggregate

__all__ = ["Expr", "read_aggregate", "read_scalar", "typecheck", "typecheck_aggregate"]
