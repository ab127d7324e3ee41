"""Reading a stream of a site log by position, from its own site or from another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

PATIENCE = 3.0
"""Seconds without an answer after which a server counts as gone."""
_AT_ONCE = 256
_MAX_BYTES = 8 << 20


class Unreadable(OSError):
    """The server answers, but not with what was asked for."""


async def call(client: Client, subject: str, question: dict[str, Any] | None = None) -> dict[str, Any]:
    """One question to the JetStream interface; its answer, an error included."""
    data = b"" if question is None else json.dumps(question).encode()
    reply = await client.request(f"$JS.API.{subject}", data, timeout=PATIENCE)
    answer = json.loads(reply.data)
    if not isinstance(answer, dict):
        raise Unreadable(f"$JS.API.{subject}: an answer that is none")
    return answer


async def let_in(client: Client, gate: str, stream: str, start: int | None = None) -> dict[str, Any]:
    """Asks the site itself for what :func:`call` would ask its server: about a stream, or for a consumer of
    it from position ``start`` on."""
    question = json.dumps({"stream": stream, "start": start}).encode()
    answer = json.loads((await client.request(gate, question, timeout=PATIENCE)).data)
    if not isinstance(answer, dict):
        raise Unreadable(f"{gate}: an answer that is none")
    return answer


def consumer(stream: str, start: int) -> dict[str, Any]:
    """What a consumer is asked for with: nothing is acknowledged, and who pulls no more is forgotten."""
    return {
        "stream_name": stream,
        "config": {
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": start + 1,
            "ack_policy": "none",
            "replay_policy": "instant",
            "mem_storage": True,
            "inactive_threshold": 30_000_000_000,
        },
    }


async def extent(client: Client, stream: str, gate: str | None = None) -> tuple[int, int] | None:
    """The position of the first record that is left and the one after the last; None: no such stream."""
    if gate is None:
        answer = await call(client, f"STREAM.INFO.{stream}")
    else:
        answer = await let_in(client, gate, stream)
    error = answer.get("error")
    if error is not None:
        if error.get("code") == 404:
            return None
        raise Unreadable(f"{stream}: {error.get('description')}")
    state = answer["state"]
    return max(state["first_seq"], 1) - 1, state["last_seq"]


async def read(client: Client, stream: str, first: int, end: int) -> AsyncIterator[tuple[int, bytes]]:
    """The records from position ``first`` to before ``end``, as far as they are there: what has been trimmed
    is left out without a word, so look at the positions."""
    inbox = client.new_inbox()
    arrived: asyncio.Queue[Msg] = asyncio.Queue()
    subscription = await client.subscribe(inbox, cb=arrived.put, pending_msgs_limit=0, pending_bytes_limit=0)
    try:
        while first < end:
            question = {"seq": first + 1, "batch": min(_AT_ONCE, end - first), "max_bytes": _MAX_BYTES}
            await client.publish(f"$JS.API.DIRECT.GET.{stream}", json.dumps(question).encode(), reply=inbox)
            before = first
            while True:
                async with asyncio.timeout(PATIENCE):
                    message = await arrived.get()
                headers = message.headers or {}
                status = headers.get("Status")
                if status is not None:
                    if status not in ("204", "404"):
                        raise Unreadable(f"{stream}: {status} {headers.get('Description', '')}")
                    break
                first = int(headers["Nats-Sequence"])
                if first > end:
                    return
                yield first - 1, message.data
            if first == before:
                return
    finally:
        await subscription.unsubscribe()


async def read_one(client: Client, stream: str, position: int) -> bytes | None:
    """The record at ``position``, or None if it is not there."""
    question = json.dumps({"seq": position + 1}).encode()
    reply = await client.request(f"$JS.API.DIRECT.GET.{stream}", question, timeout=PATIENCE)
    status = (reply.headers or {}).get("Status")
    if status is None:
        data: bytes = reply.data
        return data
    if status == "404":
        return None
    raise Unreadable(f"{stream}: {status} {(reply.headers or {}).get('Description', '')}")
