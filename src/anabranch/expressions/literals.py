"""Literals as Spark reads them: numbers by their look, text by its escapes, dates and timestamps in UTC."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isfinite, trunc
from typing import Any

from anabranch.expressions.coercion import Expr, castable, convert, literal_number
from anabranch.types import FRACTIONAL, INTEGRAL

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[01][0-7]{2}|.)", re.DOTALL)
_CONTROL = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_DIGITS = 38  # of Spark's decimals
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?Z?", re.ASCII)


def number(text: str) -> Expr | None:
    """``5`` is an int or a bigint, ``0.5`` a decimal, ``5e-1`` a double; None is beyond all of them.

    >>> [number(text).type for text in ("3000000000", "0.5", "5e-1")]
    ['bigint', 'decimal', 'double']
    """
    if not _NUMBER.fullmatch(text):
        return None
    if "e" in text.lower():
        double = float(text)
        return Expr("literal", "double", value=double) if isfinite(double) else None
    value = Decimal(text)
    for kind in ("int", "bigint"):
        if "." not in text and _fits(int(value), kind):
            return Expr("literal", kind, value=int(value))
    digits, scale = len(value.as_tuple().digits), text.partition(".")[2]
    return Expr("literal", "decimal", value=value) if max(digits, len(scale)) <= _DIGITS else None


def unescape(quoted: str) -> str | None:
    """The text that a quoted literal stands for; None if it stands for none.

    >>> unescape(r"'it\\'s\\t100\\%'")
    "it's\\t100\\\\%"
    """
    if len(quoted) < 2 or quoted[0] not in "'\"" or quoted[-1] != quoted[0]:
        return None
    try:
        text = _ESCAPE.sub(_character, quoted[1:-1])
        text.encode()
    except (OverflowError, ValueError):  # beyond Unicode, or half a surrogate pair
        return None
    return text


def _character(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) == 1:
        return _CONTROL.get(code, code)
    return chr(int(code[1:], 16) if code[0] in "uU" else int(code, 8))


def like_regex(pattern: str, escape: str) -> str | None:
    """The regular expression that a whole text must match; None if an escape precedes what needs none.

    >>> like_regex(r"a\\_%", "\\\\")
    'a_.*'
    """
    parts, characters = [], iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, "")
            if not following or following not in ("%", "_", escape):
                return None
            parts.append(re.escape(following))
        else:
            parts.append({"%": ".*", "_": "."}.get(character) or re.escape(character))
    return "".join(parts)


def cast(literal: Expr, target: str) -> Expr | None:
    """A number or text literal as ``target``; None where it does not fit."""
    value: Any = literal.value
    if literal.type == "string":
        return _cast_text(literal, target)
    if target in INTEGRAL:
        fits = abs(value) < 2**64 and _fits(trunc(value), target)
        return literal_number(value, target) if fits else None
    if target in FRACTIONAL:
        return literal_number(value, target)
    return convert(literal, target) if castable(literal.type, target) else None


def _cast_text(literal: Expr, target: str) -> Expr | None:
    text = literal.value
    try:
        if target == "date" and _DATE.fullmatch(text):
            return Expr("literal", "date", value=(date.fromisoformat(text) - _EPOCH.date()).days)
        if target == "timestamp" and (_DATE.fullmatch(text) or _TIMESTAMP.fullmatch(text)):
            moment = datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=UTC) - _EPOCH
            micros = (moment.days * 86_400 + moment.seconds) * 1_000_000 + moment.microseconds
            return Expr("literal", "timestamp", value=micros)
    except ValueError:
        return None
    return None if target in ("date", "timestamp") else convert(literal, target)


def _fits(value: int, kind: str) -> bool:
    half = 1 << (_BITS[kind] - 1)
    return -half <= value < half
