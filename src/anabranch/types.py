"""Columns and their Spark types: the DDL that users write, its canonical names, the Arrow types behind it.

>>> parse_ddl("host string, load DOUBLE, n long")
(Column(name='host', type='string'), Column(name='load', type='double'), Column(name='n', type='bigint'))
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

import msgspec
import pyarrow as pa


class QueryError(ValueError):
    """A query that cannot mean anything: the sentence names operator and column."""


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user column and its Spark type: ``Column("load", "double")``."""

    name: str
    type: str


ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
"""Every type a column may have, by its canonical name."""

INTEGRAL = ("tinyint", "smallint", "int", "bigint")
FRACTIONAL = ("float", "double")
NUMERIC = INTEGRAL + FRACTIONAL
"""Narrow to wide: of two, the later one is what they have in common."""

_SYNONYMS = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
}
_REMEDIES = {
    "decimal": "use double, or bigint in the smallest unit",
    "dec": "use double, or bigint in the smallest unit",
    "numeric": "use double, or bigint in the smallest unit",
    "array": "give each element a column of its own",
    "map": "give each entry a column of its own",
    "struct": "give each field a column of its own",
    "varchar": "use string",
    "char": "use string",
    "character": "use string",
    "timestamp_ntz": "use timestamp, which is UTC here",
    "interval": "use bigint, in microseconds",
    "variant": "give each field a column of its own",
}

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_COLUMN = re.compile(r"\s*(?P<name>[^\s:]+)\s*(?::|\s)\s*(?P<type>\S.*?)\s*", re.DOTALL)


def check_name(name: str, what: str) -> str:
    """``name`` itself, if it is an identifier that is not reserved for the system."""
    if not isinstance(name, str):
        raise QueryError(f"{what}: a name must be a string, not {name!r}.")
    if name.startswith("_"):
        raise QueryError(f"{what}: the name '{name}' is reserved, as is every name with a leading '_'.")
    if not _NAME.fullmatch(name):
        raise QueryError(f"{what}: '{name}' is not a name; use letters, digits and '_', a letter first.")
    return name


def check_columns(columns: Iterable[Column], what: str) -> None:
    """Every column has a name of its own (to Spark, upper and lower case are the same) and a known type."""
    seen: dict[str, str] = {}
    for column in columns:
        check_name(column.name, f"{what}, column '{column.name}'")
        lower = column.name.lower()
        if lower == "ts":
            raise QueryError(
                f"{what}: a column cannot be called '{column.name}'; "
                "ts is the tuple's own timestamp; choose another name."
            )
        if lower in seen:
            other = "" if seen[lower] == column.name else f" (also as '{seen[lower]}': case does not matter)"
            raise QueryError(f"{what}: column '{column.name}' is there twice{other}; rename one.")
        seen[lower] = column.name
        if column.type not in ARROW:
            where = f"{what}, column '{column.name}'"
            canonical = canonical_type(column.type, where)
            raise QueryError(f"{where}: write the type '{column.type}' as '{canonical}'.")


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """A question that names the likeliest of ``names``, or nothing if none is close.

    >>> did_you_mean("lod", ["host", "Load"])
    "did you mean 'Load'? "
    """
    lower = [known.lower() for known in names]
    close = get_close_matches(name.lower(), lower, n=1)
    return f"did you mean '{names[lower.index(close[0])]}'? " if close else ""


def canonical_type(text: str, what: str) -> str:
    """The canonical name of a Spark type.

    >>> canonical_type("LONG", "column 'n'")
    'bigint'
    """
    name = text.strip().lower()
    name = _SYNONYMS.get(name, name)
    if name in ARROW:
        return name
    family = re.split(r"[<(\s]", name, maxsplit=1)[0]
    if family in _REMEDIES:
        raise QueryError(f"{what}: the type '{text}' is not supported; {_REMEDIES[family]}.")
    extra = name[len(family) :].strip()
    if extra and _SYNONYMS.get(family, family) in ARROW:
        raise QueryError(f"{what}: '{extra}' after the type '{family}' is not supported; leave it out.")
    raise QueryError(f"{what}: there is no type '{text}'; the types are {', '.join(ARROW)}.")


def parse_ddl(ddl: str, what: str = "schema") -> tuple[Column, ...]:
    """The columns of a Spark DDL string, such as ``"host string, load double"``."""
    if not isinstance(ddl, str):
        raise QueryError(f"{what}: a schema is a string such as 'host string, load double', not {ddl!r}.")
    if not ddl.strip():
        raise QueryError(f"{what}: the schema is empty; write names and types, such as 'host string'.")
    columns = []
    for part in _split(ddl):
        match = _COLUMN.fullmatch(part)
        if match is None:
            raise QueryError(
                f"{what}: '{part.strip()}' is not a column; write a name and a type, such as 'load double'."
            )
        name = match["name"]
        columns.append(Column(name, canonical_type(match["type"], f"{what}, column '{name}'")))
    check_columns(columns, what)
    return tuple(columns)


def _split(ddl: str) -> list[str]:
    """At the commas that are not inside ``decimal(10, 2)`` or ``struct<a: int, b: int>``."""
    parts, depth, start = [], 0, 0
    for i, char in enumerate(ddl):
        if char in "(<":
            depth += 1
        elif char in ")>":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(ddl[start:i])
            start = i + 1
    return [*parts, ddl[start:]]


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type behind a canonical Spark type."""
    return ARROW[name]


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """The Arrow schema of user columns, without the id columns."""
    return pa.schema([pa.field(column.name, ARROW[column.type]) for column in columns])
