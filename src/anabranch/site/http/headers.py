"""What the head of a request to bring tuples says."""

from __future__ import annotations

import re

import msgspec
from starlette.requests import Request

from anabranch.site.http.answers import Refused
from anabranch.site.http.bodies import ARROW, NDJSON

PRODUCER, FIRST, TURN = "anabranch-producer", "anabranch-first", "anabranch-turn"
PROMISE, END = "anabranch-promise", "anabranch-end"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@ -]{0,199}")
_OURS = ("http@", "file ", "files ")
"""Beginnings of names that sites give."""
_LARGEST = 2**53
_MOST_TURNS = 2**40


class Told(msgspec.Struct, frozen=True):
    """``producer``: who the client is; ``first``: the number of the first tuple of the body; ``turn``: how
    often the client has turned to another endpoint; ``promise``: no tuple of this body or a later one has a
    timestamp up to it, unless it is late; ``end``: no tuple follows, ever."""

    producer: str | None
    first: int | None
    turn: int
    promise: int | None
    end: bool


def read_headers(request: Request) -> Told:
    name = request.headers.get(PRODUCER)
    if name is not None and (not _NAME.fullmatch(name) or name.startswith(_OURS)):
        raise Refused(
            400, "header", f"{PRODUCER}: {name[:80]!r} is no name; use letters, digits and . _ : / @ -"
        )
    told = Told(
        name,
        _number(request, FIRST, 0, _LARGEST),
        _number(request, TURN, 0, _MOST_TURNS) or 0,
        _number(request, PROMISE, -_LARGEST, _LARGEST),
        _flag(request),
    )
    if name is None and told != Told(None, None, 0, None, False):
        raise Refused(400, "header", f"{FIRST} and the like are for clients with a name: send {PRODUCER}")
    return told


def unnumbered() -> Refused:
    numbers = f"a client with a name numbers its tuples: send {FIRST}, 0 for its first one"
    return Refused(400, "header", numbers)


def content_kind(request: Request) -> str:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (*NDJSON, *ARROW):
        which = f"send {NDJSON[0]} or {ARROW[0]}, and say which"
        raise Refused(415, "type", f"content type {kind[:80]!r}: {which}")
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refused(415, "type", "the body is encoded; send it as it is")
    return kind


def _number(request: Request, header: str, least: int, most: int) -> int | None:
    text = request.headers.get(header)
    if text is None:
        return None
    if not re.fullmatch(r"-?[0-9]{1,16}", text) or not least <= int(text) < most:
        what = "microseconds since 1970" if header == PROMISE else "a whole number, from 0"
        raise Refused(400, "header", f"{header}: {text[:80]!r} is not {what}")
    return int(text)


def _flag(request: Request) -> bool:
    text = request.headers.get(END, "0")
    if text not in ("0", "1"):
        raise Refused(400, "header", f"{END}: {text[:80]!r} is neither 1 nor 0")
    return text == "1"
