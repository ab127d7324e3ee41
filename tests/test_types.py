"""Column types and durations: what users may write, and what they are told when they may not."""

from datetime import timedelta

import pyarrow as pa
import pytest

from anabranch.durations import microseconds
from anabranch.types import Column, QueryError, arrow_schema, canonical_type, parse_ddl


@pytest.mark.parametrize(
    ("ddl", "types"),
    [
        ("a boolean, b tinyint, c smallint, d int, e bigint", "boolean tinyint smallint int bigint"),
        ("a BYTE, b Short, c integer, d LONG, e real", "tinyint smallint int bigint float"),
        (
            "a float, b double, c string, d binary, e date, f timestamp",
            "float double string binary date timestamp",
        ),
        ("  a:string ,b :  double", "string double"),
        ("a timestamp_ltz", "timestamp"),
    ],
)
def test_spark_types_have_canonical_names(ddl, types):
    assert [column.type for column in parse_ddl(ddl)] == types.split()
    assert [column.name for column in parse_ddl(ddl)] == list("abcdef")[: len(types.split())]


def test_arrow_types_are_those_of_spark():
    schema = arrow_schema(parse_ddl("a bigint, b timestamp, c string, d date"))
    assert schema.types == [pa.int64(), pa.timestamp("us", "UTC"), pa.string(), pa.date32()]


@pytest.mark.parametrize(
    ("ddl", "sentence"),
    [
        ("a decimal(10, 2), b int", "column 'a': the type 'decimal(10, 2)' is not supported; use double"),
        ("a array<int>", "the type 'array<int>' is not supported; give each element a column of its own"),
        ("a struct<x: int, y: int>", "give each field a column of its own"),
        ("a varchar(10)", "use string"),
        ("a strng", "there is no type 'strng'; the types are boolean"),
        ("a int not null", "'not null' after the type 'int' is not supported"),
        ("a int, b", "'b' is not a column; write a name and a type"),
        ("a int, A double", "column 'A' is there twice (also as 'a'"),
        ("Ts int", "a column cannot be called 'Ts'; ts is the tuple's own timestamp"),
        ("_hi int", "the name '_hi' is reserved"),
        ("1a int", "'1a' is not a name"),
        ("größe int", "'größe' is not a name"),
        ("", "the schema is empty"),
        (7, "not 7"),
    ],
)
def test_a_bad_schema_is_refused_with_a_sentence(ddl, sentence):
    with pytest.raises(QueryError, match=r"^source 's'") as caught:
        parse_ddl(ddl, "source 's'")
    assert sentence in str(caught.value)


def test_canonical_names_stay_what_they_are():
    assert canonical_type("bigint", "x") == "bigint"
    assert parse_ddl("n long") == (Column("n", "bigint"),)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("500 ms", 500_000),
        ("10 seconds", 10_000_000),
        ("1 minute", 60_000_000),
        ("1.5s", 1_500_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("2 Days", 172_800_000_000),
        ("7 us", 7),
        (timedelta(milliseconds=3), 3_000),
    ],
)
def test_durations_become_microseconds(text, length):
    assert microseconds(text) == length


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("10", "'10' is not a duration"),
        ("ten seconds", "is not a duration"),
        ("-1 s", "is not a duration"),
        ("1 s or so", "is not a duration"),
        ("5 parsecs", "there is no unit 'parsecs'"),
        ("0 s", "must be longer than zero"),
        (timedelta(seconds=-1), "must be longer than zero"),
        ("0.1 us", "not a whole number of microseconds"),
        ("9999999 weeks", "more than a thousand years"),
        (10, "not 10; give the number its unit"),
        (None, "not None"),
        ("", "is not a duration"),
    ],
)
def test_a_bad_duration_is_refused_with_a_sentence(text, sentence):
    with pytest.raises(QueryError, match=r"^operator 'o', within: ") as caught:
        microseconds(text, "operator 'o', within")
    assert sentence in str(caught.value)
