"""What others may have done in a site's log: to learn how far an egress stream goes, and to have it read from
some position on.

Whoever may create a consumer at a log server may have it deliver anywhere there, into a log too. So where
sites do not trust each other with that, they ask the site, and the site creates it.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from nats.aio.client import Client

from anabranch.graph import Graph
from anabranch.log import names
from anabranch.log.reading import call, consumer


class _Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    stream: str
    start: int | None = None


def egress(graph: Graph) -> tuple[str, ...]:
    """The log server's names of all streams that sites of a query serve to each other."""
    return tuple(names.stream(graph.name, f"out/{node.name}") for node in (*graph.sources, *graph.operators))


class Gate:
    def __init__(self, graph: Graph) -> None:
        self._streams = frozenset(egress(graph))

    async def __call__(self, client: Client, data: bytes) -> bytes:
        """The log server's own answer, or one like it."""
        try:
            question = msgspec.json.decode(data, type=_Question)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return _refusal("a question that is none")
        if question.stream not in self._streams:
            return _refusal("no stream that others may read")
        if question.start is None:
            return _encoded(await call(client, f"STREAM.INFO.{question.stream}"))
        if not 0 <= question.start < 1 << 62:
            return _refusal("no position")
        request = consumer(question.stream, question.start)
        return _encoded(await call(client, f"CONSUMER.CREATE.{question.stream}", request))


def _refusal(why: str) -> bytes:
    return _encoded({"error": {"code": 400, "description": why}})


def _encoded(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer).encode()
