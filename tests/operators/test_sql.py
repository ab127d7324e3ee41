"""Expressions mean what they mean in Spark: values, nulls, NaN, overflow; and batching does not matter."""

import math
import re
import struct
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spark_definitions import value_of

from anabranch.expressions import read_scalar, typecheck
from anabranch.operators import sql
from anabranch.operators.sql import compile_aggregates, compile_predicate, compile_scalar
from anabranch.streams.batch import TIMESTAMP
from anabranch.types import Column, QueryError, arrow_schema, parse_ddl

NAN, INF = float("nan"), float("inf")
MAX, MIN = 2**63 - 1, -(2**63)
SEEN = datetime(2024, 5, 31, 12, 0, 0, 250_000, UTC)
ONE = {
    "n int": 7,
    "z int": 0,
    "nul int": None,
    "big bigint": MAX,
    "low bigint": MIN,
    "t tinyint": -128,
    "s smallint": 300,
    "x double": -2.5,
    "nan double": NAN,
    "inf double": INF,
    "zero double": -0.0,
    "f float": 0.1,
    "host string": "Straße-1",
    "none string": None,
    "yes boolean": True,
    "no boolean": False,
    "unknown boolean": None,
    "raw binary": b"\x00\xff",
    "day date": date(2024, 5, 31),
    "seen timestamp": SEEN,
}


def batch_of(columns, rows):
    """The rows as a batch, their timestamps 0, 1, 2, ..."""
    ids = range(len(rows))
    return pa.RecordBatch.from_arrays(
        [
            pa.array(ids, pa.int64()).cast(TIMESTAMP),
            pa.array(ids, pa.int64()),
            pa.array(ids, pa.int64()),
            *(
                pa.array([row[i] for row in rows], field.type)
                for i, field in enumerate(arrow_schema(columns))
            ),
        ],
        names=["_ts", "_hi", "_lo", *(column.name for column in columns)],
    )


def evaluate(expr, ddl, rows):
    columns = parse_ddl(ddl)
    return compile_scalar(expr, columns)(batch_of(columns, rows)).to_pylist()


def same(a, b):
    """Equal, with NaN equal to itself and 0.0 apart from -0.0."""
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or struct.pack("d", a) == struct.pack("d", b)
    return a == b and type(a) is type(b)


@pytest.mark.parametrize(
    ("expr", "value"),
    [
        # arithmetic: integers wrap, division is double, a zero divisor gives null
        ("n + 1", 8),
        ("big + 1", MIN),
        ("-low", MIN),
        ("abs(t)", -128),
        ("t - 1Y", 127),
        ("s * 300S", 24464),
        ("n / 2", 3.5),
        ("n / z", None),
        ("x / zero", None),
        ("n % 4", 3),
        ("-n % 4", -3),
        ("n % z", None),
        ("x % 2", -0.5),
        ("x % zero", None),
        ("low % -1L", 0),
        ("n + nul", None),
        ("f + 0.1D", 0.10000000149011612 + 0.1),
        ("inf - inf", NAN),
        # comparison: NaN equals itself and exceeds all else
        ("nan = nan", True),
        ("nan > inf", True),
        ("nan > 1", True),
        ("1 < nan", True),
        ("nan <= 1", False),
        ("nan <> nan", False),
        ("inf < nan", True),
        ("zero = 0", True),
        ("zero < 0D", False),
        ("nul = 1", None),
        ("nul <=> NULL", True),
        ("n <=> nul", False),
        ("nan <=> nan", True),
        ("n > 6.5", True),
        ("n >= 7.0", True),
        ("n = 7.5", False),
        ("nul = 7.5", None),
        ("n <> 7.5", True),
        ("nul <=> 7.5", False),
        ("big > 9223372036854775806.5", True),
        ("big >= 9223372036854775808", False),
        ("low > -9223372036854775809.5", True),
        ("7.5 > n", True),
        ("f = 0.1", False),
        ("f = 0.1F", True),
        ("host > 'Strasse'", True),
        ("none = none", None),
        ("none <=> none", True),
        ("raw < raw", False),
        ("no < yes", True),
        ("day < seen", True),
        ("seen = TIMESTAMP '2024-05-31 12:00:00.25'", True),
        ("seen > TIMESTAMP '2024-05-31T12:00:00Z'", True),
        ("day = DATE '2024-05-31'", True),
        # three values
        ("unknown AND no", False),
        ("unknown AND yes", None),
        ("unknown OR yes", True),
        ("unknown OR no", None),
        ("NOT unknown", None),
        ("unknown IS NULL", True),
        ("none IS NOT NULL", False),
        ("n BETWEEN 7 AND nul", None),
        ("n BETWEEN 8 AND nul", False),
        ("n NOT BETWEEN 8 AND 9", True),
        ("n IN (1, nul, 7)", True),
        ("n IN (1, nul)", None),
        ("n NOT IN (1, nul)", None),
        ("n NOT IN (1, 2)", True),
        ("nul IN (1)", None),
        ("nan IN (1D, nan)", True),
        ("host IN ('a', 'Straße-1')", True),
        ("none IN ('a')", None),
        # LIKE
        ("host LIKE 'Stra%'", True),
        ("host LIKE 'Stra_e-1'", True),
        ("host LIKE 'Stra'", False),
        ("host LIKE '%.%'", False),
        ("none LIKE '%'", None),
        ("host NOT LIKE 'x%'", True),
        (r"'a%b' LIKE 'a\%b'", True),
        (r"'axb' LIKE 'a\%b'", False),
        (r"'a\\b' LIKE 'a\\\\b'", True),
        ("'a_b' LIKE 'a!_b' ESCAPE '!'", True),
        ("'a\nb' LIKE 'a_b'", True),
        # choice
        ("CASE WHEN unknown THEN 1 WHEN yes THEN 2 ELSE 3 END", 2),
        ("CASE WHEN no THEN 1 END", None),
        ("CASE n WHEN 6 THEN 'six' WHEN 7 THEN 'seven' END", "seven"),
        ("CASE WHEN yes THEN n ELSE 0.5D END", 7.0),
        ("CASE WHEN unknown THEN 'a' ELSE host END", "Straße-1"),
        ("CASE nul WHEN NULL THEN 1 ELSE 2 END", 2),
        ("coalesce(nul, NULL, n)", 7),
        ("coalesce(none, 'x')", "x"),
        ("coalesce(nul, nul)", None),
        ("greatest(1, nul, 3)", 3),
        ("least(1, nul, 3)", 1),
        ("greatest(nan, inf)", NAN),
        ("least(nan, inf)", INF),
        ("greatest(zero, 0D)", -0.0),
        ("greatest('a', none, 'b')", "b"),
        ("least('a', none, 'b')", "a"),
        ("greatest(nul, nul)", None),
        # rounding
        ("floor(x)", -3),
        ("ceil(x)", -2),
        ("floor(inf)", MAX),
        ("floor(nan)", 0),
        ("ceil(-inf)", MIN),
        ("floor(big)", MAX),
        ("floor(s)", 300),
        ("round(x)", -3.0),
        ("round(2.5D)", 3.0),
        ("round(0.285D, 2)", 0.29),
        ("round(1.005D, 2)", 1.01),
        ("round(-0.4D)", 0.0),
        ("round(nan, 1)", NAN),
        ("round(inf, -1)", INF),
        ("round(1e300, -400)", 0.0),
        ("round(1e-300, 400)", 1e-300),
        ("round(0.35F, 1)", 0.30000001192092896),
        ("round(1254, -2)", 1300),
        ("round(-1250, -2)", -1300),
        ("round(t, -1)", 126),
        ("round(n, 2)", 7),
        ("round(big, -1)", MIN + 2),
        ("sqrt(n + 2)", 3.0),
        ("sqrt(x)", NAN),
        ("pow(2, 10)", 1024.0),
        ("power(1, nan)", NAN),
        ("pow(nan, 0)", 1.0),
        ("pow(-1, inf)", NAN),
        # text
        ("lower('ÀÉ')", "àé"),
        ("upper(host)", "STRASSE-1"),
        ("length(host)", 8),
        ("length(raw)", 2),
        ("length(none)", None),
        ("substring(host, 2, 3)", "tra"),
        ("substring(host, 0, 3)", "Str"),
        ("substring(host, -3)", "e-1"),
        ("substring(host, -10, 4)", "St"),
        ("substring(host, -10, 2)", ""),
        ("substring(host, 5, 0)", ""),
        ("substring(host, 5, -1)", ""),
        ("substring(host, 2, 2147483647)", "traße-1"),
        ("substr(host FROM 8 FOR 5)", "1"),
        ("substring(host, n, z + 1)", "-"),
        ("substring(host, nul)", None),
        ("concat(host, '!', 'x')", "Straße-1!x"),
        ("host || none", None),
        (r"'it\'s\t\u0041\101\%\q'", "it's\tAA\\%q"),
        # casts: narrowing wraps, floats are cut and limited, what cannot be is null
        ("CAST(s AS tinyint)", 44),
        ("CAST(big AS int)", -1),
        ("CAST(x AS int)", -2),
        ("CAST(nan AS bigint)", 0),
        ("CAST(inf AS int)", 2147483647),
        ("CAST(inf AS smallint)", -1),
        ("CAST(-inf AS bigint)", MIN),
        ("CAST(1e10 AS int)", 2147483647),
        ("CAST(1e10 AS tinyint)", -1),
        ("CAST(16777217 AS float)", 16777216.0),
        ("CAST(1e300 AS float)", INF),
        ("CAST(yes AS int)", 1),
        ("CAST(x AS boolean)", True),
        ("CAST(nan AS boolean)", True),
        ("CAST(z AS boolean)", False),
        ("CAST(n AS string)", "7"),
        ("CAST(no AS string)", "false"),
        ("CAST(nul AS string)", None),
        ("CAST(' 42\n' AS int)", 42),
        ("CAST('1.9' AS int)", 1),
        ("CAST('.' AS int)", 0),
        ("CAST('-' AS int)", None),
        ("CAST('1e3' AS int)", None),
        ("CAST('2147483648' AS int)", None),
        ("CAST('-128.99' AS tinyint)", -128),
        ("CAST('9223372036854775807' AS bigint)", MAX),
        ("CAST('00000000000000000000000000007' AS bigint)", 7),
        ("CAST('٣' AS int)", None),
        ("CAST('1e3' AS double)", 1000.0),
        ("CAST(' 1.5d ' AS double)", 1.5),
        ("CAST('-Infinity' AS double)", -INF),
        ("CAST('INF' AS double)", INF),
        ("CAST('nan' AS double)", NAN),
        ("CAST('0x1p4' AS double)", 16.0),
        ("CAST('1_0' AS double)", None),
        ("CAST('' AS double)", None),
        ("CAST('1e400' AS double)", INF),
        ("CAST('0.1' AS float)", 0.10000000149011612),
        ("CAST('Y' AS boolean)", True),
        ("CAST(' false ' AS boolean)", False),
        ("CAST('2' AS boolean)", None),
        ("CAST(host AS binary)", "Straße-1".encode()),
        ("CAST(seen AS bigint)", 1717156800),
        ("CAST(seen AS double)", 1717156800.25),
        ("CAST(seen AS date)", date(2024, 5, 31)),
        ("CAST(day AS timestamp)", datetime(2024, 5, 31, tzinfo=UTC)),
        ("CAST(-1 AS timestamp)", datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("CAST(CAST(-1 AS timestamp) AS date)", date(1969, 12, 31)),
        ("ts", datetime(1970, 1, 1, tzinfo=UTC)),
        ("CAST(NULL AS int)", None),
        ("CAST(CAST(NULL AS int) AS tinyint)", None),
        ("CAST(true AS double)", 1.0),
    ],
)
def test_an_expression_has_the_value_that_spark_gives_it(expr, value):
    (result,) = evaluate(expr, ", ".join(ONE), [list(ONE.values())])
    assert same(result, value), f"{expr} gave {result!r}"


FLOATS = st.one_of(st.floats(width=64), st.sampled_from([NAN, INF, -INF, 0.0, -0.0, 0.5, 1.0, 2.5]))
ROW = st.tuples(
    st.none() | st.integers(-3, 3),
    st.none() | FLOATS,
    st.none() | st.sampled_from(["", "a", "b", "ab", "A%", "ß"]),
    st.none() | st.booleans(),
)
DDL = "n int, x double, host string, flag boolean"
COLUMNS = parse_ddl(DDL)
EXPRESSIONS = [
    "n",
    "5",
    "CAST(NULL AS string)",
    "n + CAST(x AS int)",
    "n % 2",
    "x / n",
    "-x",
    "x > n",
    "x >= 0.5",
    "0.5 > x",
    "x <=> n",
    "x BETWEEN n AND 2",
    "flag AND x > 0",
    "flag OR NOT flag",
    "flag IS NULL OR host IS NULL",
    "host IN ('a', host)",
    "n IN (1, NULL, 2)",
    "host LIKE 'a%'",
    "host = 'a' OR host > 'aa'",
    "host <=> 'a'",
    "CASE WHEN flag THEN n WHEN x > 1 THEN 2 END",
    "CASE WHEN flag THEN host ELSE 'none' END",
    "CASE WHEN true THEN host ELSE upper(host) END",
    "coalesce(host, 'x')",
    "coalesce(x, n, 0)",
    "greatest(x, n)",
    "least(host, 'aa')",
    "round(x, 1)",
    "floor(x)",
    "pow(x, n)",
    "lower(host) || '-' || upper(host)",
    "length(host)",
    "substring(host, n, 2)",
    "substring('abc', n)",
    "CAST(n AS string)",
    "CAST(host AS int)",
    "CAST(coalesce(1, n) AS string)",
    "substring('abc', coalesce(1, n))",
    "ts",
]


@pytest.mark.parametrize("expr", EXPRESSIONS)
def test_there_are_as_many_values_as_rows(expr):
    function = compile_scalar(expr, COLUMNS)
    for rows in (0, 1, 2):
        column = function(batch_of(COLUMNS, [(1, 0.5, "ab", None)] * rows))
        assert len(column) == rows
        assert column.type == arrow_schema([Column("x", typecheck(expr, COLUMNS, "here"))])[0].type


LEAVES = {
    "number": [
        "n",
        "x",
        "1",
        "-3",
        "0.5D",
        "2S",
        "CAST(NULL AS int)",
        "NULL",
        "9223372036854775807",
        "1e300",
        "0.1F",
    ],
    "text": ["host", "''", "'aß'", "' 7 '", "CAST(NULL AS string)", "NULL"],
    "condition": ["flag", "true", "NULL", "CAST(NULL AS boolean)"],
}
FORMS = {
    "number": [
        *(f"({{number}} {sign} {{number}})" for sign in "+-*/%"),
        "(-{number})",
        *(f"{name}({{number}})" for name in ("abs", "floor", "ceil", "sqrt")),
        "round({number}, 1)",
        "round({number}, -1)",
        *(f"{name}({{number}}, {{number}})" for name in ("pow", "greatest", "least", "coalesce")),
        "CASE WHEN {condition} THEN {number} ELSE {number} END",
        *(f"CAST({{number}} AS {name})" for name in ("tinyint", "int", "bigint", "float", "double")),
        "CAST({text} AS int)",
        "CAST({text} AS double)",
        "CAST({condition} AS int)",
        "length({text})",
    ],
    "text": [
        "concat({text}, {text})",
        "upper({text})",
        "lower({text})",
        "substring({text}, CAST({number} AS int), CAST({number} AS int))",
        "coalesce({text}, {text})",
        "greatest({text}, {text})",
        "CASE WHEN {condition} THEN {text} ELSE {text} END",
        "CASE {text} WHEN {text} THEN {text} END",
        "CAST(CAST({number} AS int) AS string)",
        "CAST({condition} AS string)",
    ],
    "condition": [
        *(f"({{number}} {sign} {{number}})" for sign in ("=", "<>", "<", "<=", ">", ">=", "<=>")),
        *(f"({{text}} {sign} {{text}})" for sign in ("=", "<", "<=>")),
        "({condition} <=> {condition})",
        "({condition} AND {condition})",
        "({condition} OR {condition})",
        "(NOT {condition})",
        "(({number}) IS NULL)",
        "(({text}) IS NOT NULL)",
        "({number} BETWEEN {number} AND {number})",
        "({number} IN ({number}, {number}))",
        "({text} IN ({text}, {text}))",
        "({text} LIKE '_%')",
        "CAST({number} AS boolean)",
        "CAST({text} AS boolean)",
    ],
}


@st.composite
def expressions(draw, kind=None, depth=3):
    kind = kind or draw(st.sampled_from(sorted(FORMS)))
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(LEAVES[kind]))
    parts = re.split(r"{(\w+)}", draw(st.sampled_from(FORMS[kind])))
    return "".join(draw(expressions(part, depth - 1)) if i % 2 else part for i, part in enumerate(parts))


@settings(deadline=None)
@given(st.lists(ROW, min_size=1, max_size=6), expressions())
def test_an_expression_has_the_value_of_its_definition(rows, expr):
    try:
        typed = read_scalar(expr, COLUMNS)
    except QueryError:
        return
    result = compile_scalar(expr, COLUMNS)(batch_of(COLUMNS, rows)).to_pylist()
    expected = [value_of(typed, row) for row in rows]
    assert all(map(same, result, expected)), f"{expr} gave {result}, not {expected}"


CONDITIONS = [expr for expr in EXPRESSIONS if typecheck(expr, COLUMNS, "here") == "boolean"]


@settings(deadline=None)
@given(st.lists(ROW, max_size=20), st.sampled_from(EXPRESSIONS) | expressions(), st.data())
def test_rows_do_not_depend_on_their_batch(rows, expr, data):
    try:
        typecheck(expr, COLUMNS, "here")
    except QueryError:
        return
    function = compile_scalar(expr, COLUMNS)
    whole = batch_of(COLUMNS, rows)
    result = function(whole)
    assert len(result) == len(rows)
    result.validate(full=True)
    start = data.draw(st.integers(0, len(rows)))
    end = data.draw(st.integers(start, len(rows)))
    part = function(whole.slice(start, end - start))
    assert all(map(same, part.to_pylist(), result.to_pylist()[start:end]))
    ones = [function(whole.slice(i, 1)).to_pylist()[0] for i in range(len(rows))]
    assert all(map(same, ones, result.to_pylist()))


@settings(deadline=None)
@given(st.lists(ROW, max_size=20), st.sampled_from(CONDITIONS))
def test_a_predicate_passes_the_rows_for_which_it_is_true(rows, expr):
    batch = batch_of(COLUMNS, rows)
    truth = [value is True for value in compile_scalar(expr, COLUMNS)(batch).to_pylist()]
    passed = compile_predicate(expr, COLUMNS)(batch)
    assert (passed is None and all(truth)) or (passed is not None and passed.tolist() == truth)
    assert passed is None or not passed.all()


def test_a_constant_predicate_passes_all_or_nothing():
    batch = batch_of(COLUMNS, [(1, 1.0, "a", True)] * 3)
    assert compile_predicate("1 < 2", COLUMNS)(batch) is None
    assert compile_predicate("1 > 2", COLUMNS)(batch).tolist() == [False] * 3
    assert compile_predicate("CAST(NULL AS boolean)", COLUMNS)(batch).tolist() == [False] * 3


@settings(deadline=None)
@given(st.none() | FLOATS, st.none() | FLOATS)
def test_floats_are_ordered_with_nan_last_and_equal_to_itself(a, b):
    def key(value):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)

    ops = {"=": "__eq__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__", "<>": "__ne__"}
    for op, method in ops.items():
        expected = None if a is None or b is None else getattr(key(a), method)(key(b))
        assert evaluate(f"a {op} b", "a double, b double", [(a, b)]) == [expected]
        if a is not None and not math.isnan(a) and abs(a) < 1e15:
            literal = f"CAST({a!r} AS double)" if "e" in repr(a) or math.isinf(a) else f"{a!r}D"
            assert evaluate(f"{literal} {op} b", "a double, b double", [(a, b)]) == [expected]
            flipped = None if b is None else getattr(key(b), method)(key(a))
            assert evaluate(f"b {op} {literal}", "a double, b double", [(a, b)]) == [flipped]


@settings(deadline=None)
@given(st.integers(-50, 50), st.decimals(-51, 51, places=1))
def test_an_integer_meets_a_decimal_literal_exactly(n, bound):
    ops = {
        "=": n == bound,
        "<>": n != bound,
        "<": n < bound,
        "<=": n <= bound,
        ">": n > bound,
        ">=": n >= bound,
    }
    for op, expected in ops.items():
        assert evaluate(f"n {op} {bound}", "n bigint", [(n,)]) == [expected]


DIGITS = st.integers(-3, 17)


@settings(deadline=None)
@given(
    st.lists(st.floats(-1e12, 1e12) | FLOATS | st.integers(-999, 999).map(lambda i: i / 200), max_size=30),
    DIGITS,
)
def test_rounding_is_half_up_of_the_decimal_text(values, digits):
    def expected(value):
        if not math.isfinite(value):
            return value
        context = Context(prec=400, rounding=ROUND_HALF_UP)
        return float(Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), context=context)) + 0.0

    result = evaluate(f"round(x, {digits})", "x double", [(value,) for value in values])
    assert all(map(same, result, map(expected, values)))


@settings(deadline=None)
@given(st.text("ab%_", max_size=6), st.text("ab%_", max_size=6))
def test_like_is_the_definition(text, pattern):
    def matches(t, p):
        if not p:
            return not t
        if p[0] == "%":
            return matches(t, p[1:]) or (bool(t) and matches(t[1:], p))
        return bool(t) and p[0] in ("_", t[0]) and matches(t[1:], p[1:])

    assert evaluate(f"t LIKE '{pattern}'", "t string", [(text,)]) == [matches(text, pattern)]


@settings(deadline=None)
@given(st.text("abß", max_size=5), st.integers(-8, 8), st.integers(-2, 9))
def test_substring_is_what_utf8string_does(text, position, count):
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    until = start + count
    expected = "".join(c for i, c in enumerate(text) if start <= i < until)
    assert evaluate(f"substring(t, {position}, {count})", "t string", [(text,)]) == [expected]


# Aggregates


def welford(values):
    """Spark's CentralMomentAgg."""
    count, mean, squares = 0, 0.0, 0.0
    for value in values:
        count += 1
        delta = value - mean
        step = delta / count
        mean += step
        squares += delta * (delta - step)
    return math.sqrt(squares / (count - 1)) if count > 1 else None


def order(value):
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def first_best(rows, key, value, pick):
    keyed = [row for row in rows if row[key] is not None]
    if not keyed:
        return None
    best = pick(order(row[key]) for row in keyed)
    return next(row[value] for row in keyed if order(row[key]) == best)


def folded(values):
    total = 0.0
    for value in values:
        total += value
    return total


def known(rows, column):
    return [row[column] for row in rows if row[column] is not None]


def wrap(value):
    return (value + 2**63) % 2**64 - 2**63


N, X, HOST, FLAG = range(4)
AGGREGATES = {
    "count(*)": len,
    "count(x)": lambda rows: len(known(rows, X)),
    "count(host)": lambda rows: len(known(rows, HOST)),
    "sum(n)": lambda rows: sum(known(rows, N)) if known(rows, N) else None,
    "sum(CAST(n AS bigint) * 9223372036854775807)": lambda rows: (
        wrap(sum(wrap(n * MAX) for n in known(rows, N))) if known(rows, N) else None
    ),
    "sum(x)": lambda rows: folded(known(rows, X)) if known(rows, X) else None,
    "sum(1)": len,
    "avg(n)": lambda rows: folded(known(rows, N)) / len(known(rows, N)) if known(rows, N) else None,
    "min(x)": lambda rows: first_best(rows, X, X, min),
    "max(x)": lambda rows: first_best(rows, X, X, max),
    "min(host)": lambda rows: first_best(rows, HOST, HOST, min),
    "max(host)": lambda rows: first_best(rows, HOST, HOST, max),
    "max(flag)": lambda rows: first_best(rows, FLAG, FLAG, max),
    "min_by(host, x)": lambda rows: first_best(rows, X, HOST, min),
    "max_by(n, host)": lambda rows: first_best(rows, HOST, N, max),
    "max_by(x, n)": lambda rows: first_best(rows, N, X, max),
    "count(*) + 1": lambda rows: len(rows) + 1,
    "concat(min(host), '!')": lambda rows: (
        None if not known(rows, HOST) else first_best(rows, HOST, HOST, min) + "!"
    ),
    "coalesce(max(n), -1) - coalesce(min(n), 1)": lambda rows: (
        max(known(rows, N)) - min(known(rows, N)) if known(rows, N) else -2
    ),
}


@settings(deadline=None)
@given(st.lists(st.tuples(ROW, st.integers(0, 4)), min_size=1, max_size=40))
def test_aggregates_are_their_definitions(drawn):
    present = sorted({group for _, group in drawn})
    groups = [present.index(group) for _, group in drawn]
    rows = [row for row, _ in drawn]
    aggregation = compile_aggregates(tuple((f"a{i}", expr) for i, expr in enumerate(AGGREGATES)), COLUMNS)
    results = aggregation.apply(batch_of(COLUMNS, rows), np.array(groups, np.int64), len(present))
    for (expr, definition), column, declared in zip(
        AGGREGATES.items(), results, aggregation.columns, strict=True
    ):
        assert column.type == arrow_schema([declared])[0].type
        column.validate(full=True)
        for group, value in enumerate(column.to_pylist()):
            expected = definition([row for row, of in zip(rows, groups, strict=True) if of == group])
            assert same(value, expected), f"{expr} of group {group}: {value!r}, not {expected!r}"


@settings(deadline=None)
@given(st.lists(st.none() | st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_stddev_is_sparks_recurrence_and_null_of_one_row(values):
    columns = parse_ddl("x double")
    batch = batch_of(columns, [(value,) for value in values])
    (column,) = compile_aggregates((("s", "stddev(x)"),), columns).apply(
        batch, np.zeros(len(values), np.int64), 1
    )
    assert same(column[0].as_py(), welford([value for value in values if value is not None]))


def test_extremes_reach_the_ends_of_the_integers():
    columns = parse_ddl("b bigint")
    batch = batch_of(columns, [(MIN,), (0,), (MAX,), (MIN,)])
    aggregation = compile_aggregates((("low", "min(b)"), ("high", "max(b)")), columns)
    for groups, low, high in (([0, 0, 0, 0], [MIN], [MAX]), ([0, 1, 1, 0], [MIN, 0], [MIN, MAX])):
        results = aggregation.apply(batch, np.array(groups), len(low))
        assert [column.to_pylist() for column in results] == [low, high]


def test_a_fold_that_two_aggregates_share_is_done_once(monkeypatch):
    done = []
    fold = sql.fold
    monkeypatch.setattr(sql, "fold", lambda function, *rest: done.append(function) or fold(function, *rest))
    aggregation = compile_aggregates((("a", "max(x) - min(x)"), ("b", "max(x)"), ("n", "count(*)")), COLUMNS)
    aggregation.apply(batch_of(COLUMNS, [(1, 2.0, "a", True)]), np.zeros(1, np.int64), 1)
    assert sorted(done) == ["count", "max", "min"]


def test_what_lies_under_a_null_does_not_show_in_the_bytes():
    columns = parse_ddl("x double, n int")
    data = pa.array([1.0, 9.0]).buffers()[1]
    hidden = pa.Array.from_buffers(pa.float64(), 2, [pa.py_buffer(b"\x01"), data])
    ids = batch_of(columns, [(1.0, 1), (None, 2)])
    batch = pa.RecordBatch.from_arrays([*ids.columns[:3], hidden, ids.column(4)], names=ids.schema.names)
    result = compile_scalar("x * 2", columns)
    assert result(batch).buffers()[1].to_pybytes() == result(ids).buffers()[1].to_pybytes()
