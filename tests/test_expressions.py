"""What an expression's type is, and what is said of one that has none."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.expressions import typecheck, typecheck_aggregate
from anabranch.types import QueryError, parse_ddl

COLUMNS = parse_ddl(
    "flag boolean, t tinyint, s smallint, n int, b bigint, f float, load double, "
    "host string, raw binary, day date, seen timestamp"
)


@pytest.mark.parametrize(
    ("expr", "kind"),
    [
        # numbers meet at the wider type; a long and a float meet at float, as without ANSI mode
        ("t + s", "smallint"),
        ("n * b", "bigint"),
        ("b + f", "float"),
        ("f - load", "double"),
        ("n % b", "bigint"),
        ("n / n", "double"),
        ("f / f", "double"),
        ("-s", "smallint"),
        # literals
        ("5", "int"),
        ("-2147483648", "int"),
        ("2147483648", "bigint"),
        ("-9223372036854775808", "bigint"),
        ("5L", "bigint"),
        ("5S", "smallint"),
        ("-128Y", "tinyint"),
        ("0.5D", "double"),
        ("0.5F", "float"),
        ("5e-1", "double"),
        ("'x'", "string"),
        ('"x"', "string"),
        ("true", "boolean"),
        ("DATE '2024-05-31'", "date"),
        ("TIMESTAMP '2024-05-31 12:00:00.25'", "timestamp"),
        # a decimal literal takes the type of a float or double it meets
        ("load * 0.5", "double"),
        ("f * 0.5", "double"),
        ("f > 0.5", "boolean"),
        ("greatest(n, load, 0.5)", "double"),
        ("coalesce(load, 0.0)", "double"),
        ("sqrt(0.25)", "double"),
        # an integer may be compared with one, but not computed with one
        ("n > 0.5", "boolean"),
        ("0.5 < b", "boolean"),
        ("n BETWEEN 0.5 AND 1.5", "boolean"),
        # conditions
        ("flag AND NOT load > 0", "boolean"),
        ("host IS NOT NULL", "boolean"),
        ("host NOT LIKE 'a%'", "boolean"),
        ("host LIKE 'a!%' ESCAPE '!'", "boolean"),
        ("n IN (1, 2, NULL)", "boolean"),
        ("n <=> NULL", "boolean"),
        ("flag = (n < 3)", "boolean"),
        ("day < seen", "boolean"),
        ("ts > TIMESTAMP '2024-05-31'", "boolean"),
        # choices
        ("CASE WHEN flag THEN n ELSE b END", "bigint"),
        ("CASE n WHEN 1 THEN 'one' END", "string"),
        ("coalesce(NULL, n)", "int"),
        ("least(day, seen)", "timestamp"),
        # functions
        ("abs(t)", "tinyint"),
        ("floor(load)", "bigint"),
        ("ceil(n)", "bigint"),
        ("round(load, 2)", "double"),
        ("round(n, -2)", "int"),
        ("pow(n, 2)", "double"),
        ("length(host)", "int"),
        ("length(raw)", "int"),
        ("upper(substring(host, 1, 3)) || '!'", "string"),
        ("CAST(n AS string)", "string"),
        ("CAST(host AS double)", "double"),
        ("n::bigint", "bigint"),
        ("CAST(NULL AS binary)", "binary"),
        # names: case does not matter, quotes do not either
        ("LOAD", "double"),
        ("`load`", "double"),
        ("TS", "timestamp"),
    ],
)
def test_an_expression_has_the_type_that_spark_gives_it(expr, kind):
    assert typecheck(expr, COLUMNS, "here") == kind


@pytest.mark.parametrize(
    ("expr", "sentence"),
    [
        (
            "lod > 1",
            "there is no column 'lod' at character 1 of 'lod > 1'; did you mean 'load'? the columns are flag",
        ),
        ("1 + zzz", "there is no column 'zzz' at character 5"),
        ("_ts", "there is no column '_ts'"),
        ("a.load", "column 'load' is qualified"),
        ("load + host", "+ between double and string"),
        ("host = 1", "= between string and int"),
        ("flag = 1", "= between boolean and int"),
        ("n * 0.5", "write 0.5D for a double"),
        ("0.5", "write 0.5D for a double"),
        ("NULL", "has no type"),
        ("CASE WHEN flag THEN 0.5 ELSE 1.5 END", "0.5 is a decimal, 0.5D a double"),
        ("coalesce(n, 'x')", "COALESCE over int, string"),
        ("NOT n", "NOT takes boolean, not int"),
        ("abs(host)", "ABS takes a number, not string"),
        ("concat(host, n)", "CONCAT takes string, not int"),
        # what sqlglot and Spark would group differently
        ("flag = n < 3", "put the inner one into parentheses"),
        ("n < 3 = flag", "put the inner one into parentheses"),
        ("host LIKE 'a' = flag", "put the inner one into parentheses"),
        ("flag = n BETWEEN 1 AND 2", "put the inner one into parentheses"),
        # what sqlglot reads, but Spark reads otherwise or not at all
        ("'a''b'", "two text literals side by side"),
        ("300Y", "the literal 300 as tinyint"),
        ("1e999", "no type holds the number 1e999"),
        ("0." + "0" * 38 + "1", "no type holds the number"),
        ("CAST((300) AS tinyint)", "the literal 300 as tinyint"),
        ("CAST(DATE '2024-05-31' AS int)", "CAST from date to int is not supported"),
        ("'\\ud800'", "a text literal"),
        ("host LIKE 'a!b' ESCAPE '!'", "precedes neither"),
        ("host LIKE host", "write the pattern as a literal"),
        ("host LIKE 'a' ESCAPE '%'", "one character other than"),
        ("DATE '2024-02-30'", "the literal 2024-02-30 as date"),
        # outside the subset, by name
        ("foo(n)", "the function FOO is not supported at character 1"),
        ("n DIV 2", "DIV is not supported"),
        ("n & 1", "BITWISEAND is not supported"),
        ("if(flag, 1, 2)", "IF is not supported"),
        ("rand()", "RAND is not supported"),
        ("current_timestamp()", "CURRENT_TIMESTAMP is not supported"),
        ("host ILIKE 'x'", "ILIKE is not supported"),
        ("host RLIKE 'x'", "REGEXP_LIKE is not supported"),
        ("n IN (SELECT 1)", "IN with 'query' is not supported"),
        ("try_cast(host AS int)", "with 'safe' is not supported"),
        ("CAST(n AS decimal(10, 2))", "CAST to DECIMAL(10, 2) is not supported"),
        ("CAST(load AS string)", "CAST from double to string is not supported"),
        ("CAST(host AS timestamp)", "CAST from string to timestamp is not supported"),
        ("floor(load, 1)", "FLOOR with 'decimals' is not supported"),
        ("round(load, n)", "not an int literal"),
        ("greatest(n)", "give it at least two"),
        ("substring(host)", "lacks an argument"),
        ("load AS x", "ALIAS is not supported"),
        ("*", "STAR is not supported"),
        ("max(load)", "the aggregate function MAX where no window is"),
        # no expression at all
        ("load >", "is not an expression in Spark's SQL"),
        ("load; host", "is not one SQL expression"),
        ("load FROM t", "is not one SQL expression"),
        ("DISTINCT load", "is not one SQL expression"),
        ("load, host", "is not one SQL expression"),
        ("", "the expression is empty"),
        (" ", "the expression is empty"),
        (5, "an expression is a string in SQL, not 5"),
        ("n" + "+n" * 3000, "nested too deeply"),
        ("(" * 3000 + "n" + ")" * 3000, "nested too deeply"),
        ("x" * 10_001, "longer than 10000 characters"),
        ("'\ud800'", "half a surrogate pair"),
    ],
)
def test_a_bad_expression_is_refused_with_a_sentence(expr, sentence):
    with pytest.raises(QueryError, match=r"^operator 'o', predicate: ") as caught:
        typecheck(expr, COLUMNS, "operator 'o', predicate")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("expr", "kind"),
    [
        ("count(*)", "bigint"),
        ("count(NULL)", "bigint"),
        ("sum(n)", "bigint"),
        ("sum(f)", "double"),
        ("avg(n)", "double"),
        ("mean(load)", "double"),
        ("stddev(n)", "double"),
        ("stddev_samp(n)", "double"),
        ("min(host)", "string"),
        ("max(ts)", "timestamp"),
        ("min_by(host, load)", "string"),
        ("max_by(flag, host)", "boolean"),
        ("max(load) - min(load)", "double"),
        ("sum(load * 2) / count(*)", "double"),
        ("sum(CASE WHEN flag THEN 1 ELSE 0 END)", "bigint"),
        ("concat(min(host), '-', max(host))", "string"),
    ],
)
def test_an_aggregate_has_the_type_that_spark_gives_it(expr, kind):
    assert typecheck_aggregate(expr, COLUMNS, "here") == kind


@pytest.mark.parametrize(
    ("expr", "sentence"),
    [
        ("load", "column 'load' outside an aggregate function at character 1"),
        ("count(*) + n", "column 'n' outside an aggregate function at character 12"),
        ("1 + 1", "contains no aggregate function"),
        ("max(min(n))", "MIN inside an aggregate function"),
        ("count(DISTINCT n)", "DISTINCT is not supported"),
        ("sum(n) FILTER (WHERE flag)", "FILTER is not supported"),
        ("sum(n) OVER ()", "WINDOW is not supported"),
        ("first(n)", "FIRST is not supported"),
        ("stddev_pop(n)", "STDDEV_POP is not supported"),
        ("sum(host)", "SUM takes a number, not string"),
        ("sum(0.5)", "SUM of a decimal"),
        ("count()", "lacks an argument"),
        ("max(n, b)", "MAX with 'expressions' is not supported"),
        ("min_by(host)", "MIN_BY lacks an argument"),
    ],
)
def test_a_bad_aggregate_is_refused_with_a_sentence(expr, sentence):
    with pytest.raises(QueryError, match=r"^operator 'o', column 'x': ") as caught:
        typecheck_aggregate(expr, COLUMNS, "operator 'o', column 'x'")
    assert sentence in str(caught.value)


def test_a_pair_has_no_timestamp_to_name():
    with pytest.raises(QueryError, match="a pair has no timestamp of its own yet"):
        typecheck("ts > seen", COLUMNS, "here", ts=False)


TOKENS = (
    "load n host flag ts ( ) + - * / % = < > <=> AND OR NOT IS NULL IN LIKE BETWEEN CASE WHEN THEN END , 1 "
    "0.5 'a' '%' 5Y CAST AS int max count round substring ' \" ` ; -- /* é ²"
)
WORDS = st.sampled_from(TOKENS.split())


@settings(deadline=None)
@given(st.one_of(st.lists(WORDS, max_size=12).map(" ".join), st.text(max_size=30)))
def test_any_text_has_a_type_or_a_query_error(text):
    try:
        sentence = typecheck(text, COLUMNS, "here") + "."
    except QueryError as error:
        sentence = str(error)
    assert sentence.endswith(".")
