"""Records of a log as they come: a raw pull consumer with several requests on their way.

Every request ends with one status, and every status is answered by one new request, or kept owed while the
reader has enough to do. A range that was trimmed is skipped without a word: every position is compared with
the one expected.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from anabranch.log.reading import Unreadable, call

REQUESTS = 4
BYTES = 2 << 20
"""Of one request."""
_ENOUGH = 9 << 20
"""Bytes of a request for a record that is larger than usual."""
_HEARTBEAT = 3.0
_EXPIRES = 30.0
_NANO = 1_000_000_000
_TOO_LARGE = "Message Size Exceeds MaxBytes"
_OVER = ("404", "408")
"""Statuses that end a request, and nothing else."""


class Tail:
    """Hands the records of stream ``name`` from ``position`` on to ``take``; ``busy`` says that it is enough
    for now: then :meth:`go_on` must follow when it is not."""

    def __init__(
        self,
        client: Client,
        name: str,
        position: int,
        window: int,
        take: Callable[[int, bytes], None],
        busy: Callable[[], bool],
    ) -> None:
        self.next = position
        self._client = client
        self._name = name
        self._batch = max(1, window // REQUESTS)
        self._take = take
        self._busy = busy
        self._inbox = client.new_inbox()
        self._news: asyncio.Queue[Msg | None] = asyncio.Queue()
        self._subscription: Subscription | None = None
        self._consumer = ""
        self._owed = REQUESTS
        self._bytes = BYTES
        self._stuck = position

    async def open(self) -> None:
        self._subscription = await self._client.subscribe(
            self._inbox, cb=self._news.put, pending_msgs_limit=0, pending_bytes_limit=0
        )
        answer = await call(
            self._client,
            f"CONSUMER.CREATE.{self._name}",
            {
                "stream_name": self._name,
                "config": {
                    "deliver_policy": "by_start_sequence",
                    "opt_start_seq": self.next + 1,
                    "ack_policy": "none",
                    "replay_policy": "instant",
                    "mem_storage": True,
                    "inactive_threshold": 30 * _NANO,
                },
            },
        )
        if "error" in answer:
            raise Unreadable(f"{self._name}: {answer['error'].get('description')}")
        self._consumer = answer["name"]

    async def run(self) -> None:
        """Until the log skips a position or the consumer is gone: then it says so by raising Unreadable."""
        await self._request()
        while True:
            message = await self._wait()
            if message is None:
                await self._request()
            elif message.headers is not None and "Status" in message.headers:
                await self._on_status(message.headers["Status"], message.headers.get("Description", ""))
            else:
                self._on_record(message)

    def go_on(self) -> None:
        """The reader has room again."""
        if self._owed:
            self._news.put_nowait(None)

    async def close(self) -> None:
        if self._subscription is not None and not self._client.is_closed:
            await self._subscription.unsubscribe()
        if self._consumer and not self._client.is_closed:
            await self._client.publish(f"$JS.API.CONSUMER.DELETE.{self._name}.{self._consumer}")

    async def _wait(self) -> Msg | None:
        if not self._news.empty():
            return self._news.get_nowait()
        # Only a request that is on its way has a heartbeat.
        patience = 3 * _HEARTBEAT if self._owed < REQUESTS else None
        try:
            # Not wait_for: before Python 3.12 it may lose a cancellation that comes with a message.
            async with asyncio.timeout(patience):
                return await self._news.get()
        except TimeoutError:
            raise Unreadable(f"{self._name}: its consumer has fallen silent") from None

    async def _request(self) -> None:
        while self._owed and not self._busy():
            self._owed -= 1
            question = {
                "batch": self._batch,
                "max_bytes": self._bytes,
                "expires": int(_EXPIRES * _NANO),
                "idle_heartbeat": int(_HEARTBEAT * _NANO),
            }
            await self._client.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{self._name}.{self._consumer}",
                json.dumps(question).encode(),
                reply=self._inbox,
            )

    async def _on_status(self, status: str, description: str) -> None:
        if status == "100":
            return
        if status not in _OVER and description not in ("Batch Completed", _TOO_LARGE):
            raise Unreadable(f"{self._name}: {status} {description}")
        if description == _TOO_LARGE:
            self._bytes = _ENOUGH if self._stuck == self.next else BYTES
            self._stuck = self.next
        else:
            self._bytes = BYTES
        self._owed += 1
        await self._request()

    def _on_record(self, message: Msg) -> None:
        """Its position is in the subject that an acknowledgement would go to."""
        position = int(message.reply.split(".")[-4]) - 1
        if position < self.next:
            return
        if position > self.next:
            raise Unreadable(f"{self._name}: positions {self.next} to {position - 1} have been trimmed")
        self.next += 1
        self._take(position, message.data)
