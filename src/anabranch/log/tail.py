"""The end of a stream, followed without its contents: which records are there, and how large each is.

A consumer on the server that sends headers only. Who is up to date waits without a question being asked, and
hears at once.
"""

from __future__ import annotations

import json
import secrets
import time
from collections import deque

from anabranch.log.blocking import Connection, Hole, Message

_AT_ONCE = 500
_EXPIRES = 25.0
_FORGOTTEN = 300.0


class Tail:
    """The records of ``stream`` from ``position`` on, as they come."""

    def __init__(self, connection: Connection, stream: str, position: int) -> None:
        self.position = position
        """Of the first record in ``sizes``."""
        self.sizes: deque[int] = deque()
        self.bytes = 0
        """Of all of them together."""
        self._connection = connection
        self._stream = stream
        self._name = f"tail-{secrets.token_hex(8)}"
        self._subscription, self._inbox = connection.subscribe()
        self._owed = 0
        self._asked_at = 0.0
        answer = connection.ask(
            f"CONSUMER.CREATE.{stream}.{self._name}",
            {
                "stream_name": stream,
                "config": {
                    "name": self._name,
                    "deliver_policy": "by_start_sequence",
                    "opt_start_seq": position + 1,
                    "ack_policy": "none",
                    "replay_policy": "instant",
                    "mem_storage": True,
                    "num_replicas": 1,
                    "headers_only": True,
                    "inactive_threshold": int(_FORGOTTEN * 1e9),
                },
            },
        )
        if "error" in answer:
            raise Hole(f"{stream} cannot be followed: {answer['error'].get('description')}")

    @property
    def end(self) -> int:
        """Behind the last record known."""
        return self.position + len(self.sizes)

    def drop(self, position: int) -> None:
        """Records before ``position`` are of no more interest."""
        while self.position < position and self.sizes:
            self.bytes -= self.sizes.popleft()
            self.position += 1

    def ask(self) -> None:
        """Sees to it that the server owes us an answer."""
        if self._owed > _AT_ONCE // 2 and time.monotonic() - self._asked_at < _EXPIRES:
            return
        question = {"batch": _AT_ONCE, "expires": int(_EXPIRES * 1e9)}
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
        self._connection.publish(subject, json.dumps(question).encode(), self._inbox)
        self._owed += _AT_ONCE
        self._asked_at = time.monotonic()

    def take(self, message: Message) -> bool:
        """Whether ``message`` was meant for this tail."""
        if message.subscription != self._subscription:
            return False
        status = message.status
        if status in ("404", "408"):
            self._owed = 0
            return True
        if status in ("409", "503"):
            raise ConnectionResetError(f"the server has forgotten who follows {self._stream}")
        if status:
            return True
        self._owed -= 1
        words = message.reply.split(".")
        position = int(words[-4]) - 1
        if position != self.end:
            raise Hole(
                f"{self._stream} has no records from position {self.end} to {position}: they were trimmed "
                "before they were read"
            )
        size = int(message.header("Nats-Msg-Size") or 0)
        self.sizes.append(size)
        self.bytes += size
        return True


class Tails:
    """Several tails over one connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._tails: dict[str, Tail] = {}

    def follow(self, stream: str, position: int) -> Tail | None:
        """The tail of ``stream``, from ``position`` on; None while there is no such stream and none is
        missed: nothing has been appended yet."""
        tail = self._tails.get(stream)
        if tail is None or position < tail.position:
            if position == 0 and "error" in self.connection.ask(f"STREAM.INFO.{stream}"):
                return None
            tail = self._tails[stream] = Tail(self.connection, stream, position)
            tail.ask()
            # What is there already is told at once: the answer to a question asked later comes behind it.
            self.connection.ask(f"STREAM.INFO.{stream}")
        tail.drop(position)
        return tail

    def drain(self, patience: float = 0.0) -> bool:
        """Takes in what has come; waits for the first of it, up to ``patience``. Whether anything came."""
        any_came = False
        for tail in self._tails.values():
            tail.ask()
        until = time.monotonic() + patience
        while True:
            message = self.connection.poll(0.0 if any_came else until - time.monotonic())
            if message is None:
                return any_came
            for tail in self._tails.values():
                if tail.take(message):
                    any_came = any_came or not message.status
                    tail.ask()
