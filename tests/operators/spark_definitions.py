"""Typed expressions over one tuple, in plain Python, straight from Spark's definitions: an oracle."""

import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np

BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
EXACT = Context(prec=2000, rounding=ROUND_HALF_UP)


def fit(value, kind):
    """The value as its type holds it: integers wrap, floats are rounded to theirs."""
    if value is None or kind not in (*BITS, "float", "double"):
        return value
    if kind in BITS:
        half = 1 << (BITS[kind] - 1)
        return (int(value) + half) % (2 * half) - half
    with np.errstate(all="ignore"):
        return float(np.float32(value)) if kind == "float" else float(value)


def order(value):
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value


COMPARE = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def to_integer(value, kind):
    """Java's conversion of a double."""
    low, high = (-(2**63), 2**63 - 1) if kind == "bigint" else (-(2**31), 2**31 - 1)
    if math.isnan(value):
        return 0
    return fit(low if value <= low else high if value >= high else math.trunc(value), kind)


def cast(value, source, target):
    if source == target:
        return value
    if source == "string":
        return parse(value, target)
    if target == "string":
        return str(value).lower() if source == "boolean" else str(value)
    if target == "boolean":
        return value != 0
    if target in BITS and source in ("float", "double"):
        return to_integer(value, target)
    return fit(value, target)


def parse(text, target):
    text = text.strip()
    if target == "boolean":
        words = {"t": True, "true": True, "y": True, "yes": True, "1": True}
        words |= {"f": False, "false": False, "n": False, "no": False, "0": False}
        return words.get(text.lower())
    if target in BITS:
        if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]*)", text):
            return None
        value = int(text.split(".")[0].lstrip("+") or "0")
        return value if fit(value, target) == value else None
    return float(text) if re.fullmatch(r"[+-]?[0-9]+", text) else None


def power(a, b):
    if math.isnan(b) or (math.isinf(b) and abs(a) == 1):
        return math.nan
    with np.errstate(all="ignore"):
        return float(np.power(np.float64(a), np.float64(b)))


def rounded(value, digits, kind):
    if kind in BITS:
        return fit(int(EXACT.quantize(Decimal(value), Decimal(1).scaleb(-min(digits, 0)))), kind)
    if not math.isfinite(value):
        return value
    return float(EXACT.quantize(Decimal(repr(float(value))), Decimal(1).scaleb(-digits))) + 0.0


def substring(text, position, count=2**31 - 1):
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    return "".join(c for i, c in enumerate(text) if start <= i < start + count)


def remainder(a, b):
    if isinstance(a, int):
        return abs(a) % abs(b) * (1 if a >= 0 else -1)
    return math.nan if math.isinf(a) or math.isnan(a) or math.isnan(b) else math.fmod(a, b)


def arithmetic(op, a, b):
    if op in "/%" and b == 0:
        return None
    if op == "%":
        return remainder(a, b)
    if op == "/":
        with np.errstate(all="ignore"):
            return float(np.float64(a) / np.float64(b))
    return a + b if op == "+" else a - b if op == "-" else a * b


STRICT = {
    "neg": lambda e, a: -a,
    "abs": lambda e, a: abs(a),
    "not": lambda e, a: not a,
    "sqrt": lambda e, a: math.sqrt(a) if a >= 0 else math.nan,
    "floor": lambda e, a: to_integer(a if not math.isfinite(a) else math.floor(a), "bigint"),
    "ceil": lambda e, a: to_integer(a if not math.isfinite(a) else math.ceil(a), "bigint"),
    "round": lambda e, a: rounded(a, e.value, e.type),
    "pow": lambda e, a, b: power(a, b),
    "like": lambda e, a: re.fullmatch(e.value, a, re.DOTALL) is not None,
    "lower": lambda e, a: a.lower(),
    "upper": lambda e, a: a.upper(),
    "length": lambda e, a: len(a),
    "substring": lambda e, *args: substring(*args),
    "concat": lambda e, *args: "".join(args),
    "cast": lambda e, a: cast(a, e.args[0].type, e.type),
    **{op: (lambda e, a, b: arithmetic(e.op, a, b)) for op in "+-*/%"},
    **{op: (lambda e, a, b: COMPARE[e.op](order(a), order(b))) for op in COMPARE},
}


def value_of(expr, row):
    """The value of ``expr`` for a tuple, given as the values of its columns."""
    if expr.op == "column":
        return row[expr.value]
    if expr.op == "literal":
        return fit(
            float(expr.value) if isinstance(expr.value, str) and expr.type == "float" else expr.value,
            expr.type,
        )
    args = [value_of(arg, row) for arg in expr.args]
    known = [arg for arg in args if arg is not None]
    match expr.op:
        case "is_null":
            return args[0] is None
        case "<=>":
            return (args[0] is None) == (args[1] is None) and (not known or order(args[0]) == order(args[1]))
        case "and":
            return False if False in args else None if None in args else True
        case "or":
            return True if True in args else None if None in args else False
        case "in":
            if args[0] is None:
                return None
            hit = any(order(args[0]) == order(option) for option in known[1:])
            return True if hit else None if None in args else False
        case "coalesce":
            return known[0] if known else None
        case "greatest" | "least":
            pick = max if expr.op == "greatest" else min
            return pick(known, key=order) if known else None
        case "case":
            for condition, result in zip(args[:-1:2], args[1:-1:2], strict=True):
                if condition is True:
                    return result
            return args[-1]
    if None in args:
        return None
    return fit(STRICT[expr.op](expr, *args), expr.type)
