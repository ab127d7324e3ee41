"""A connection to a log server for processes without an event loop, such as Spark's workers.

Small on purpose: it starts in a millisecond or two, which a process does that lives for one task. Every
operation may block up to ``PATIENCE`` and then raises an ``OSError``; the connection is then of no more use.
"""

from __future__ import annotations

import json
import secrets
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

PATIENCE = 10.0
_AT_ONCE = 256
_PAUSE = 0.1
_MAX_BYTES = 8 << 20
_OUTSTANDING = 4


class Hole(OSError):
    """Records that were asked for are not there: the sentence says which."""


class Message(NamedTuple):
    subscription: int
    subject: str
    reply: str
    headers: bytes
    data: bytes

    @property
    def status(self) -> str:
        """Empty for an ordinary message."""
        line = self.headers[: self.headers.find(b"\r")]
        return line[9:12].decode() if len(line) > 8 else ""

    def header(self, name: str) -> str:
        key = f"\r\n{name}: ".encode()
        at = self.headers.find(key)
        if at < 0:
            return ""
        start = at + len(key)
        return self.headers[start : self.headers.index(b"\r", start)].decode()


class Connection:
    """One socket, used by one thread."""

    def __init__(self, url: str, user: str | None = None, password: str | None = None) -> None:
        """``url``: as :meth:`anabranch.log.connection.Tls.within` writes it, where servers want to know who
        asks."""
        place = urlsplit(url)
        self._socket = socket.create_connection((place.hostname, place.port or 4222), PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self._waiting: list[Message] = []
        self._inbox = f"_INBOX.{secrets.token_hex(11)}"
        self._asked = 0
        self._subscribed = 1
        self.open = True
        options: dict[str, Any] = {
            "verbose": False,
            "pedantic": False,
            "lang": "anabranch",
            "version": "1",
            "protocol": 1,
            "headers": True,
            "no_responders": True,
        }
        if user is not None:
            options |= {"user": user, "pass": password or ""}
        try:
            self._line(time.monotonic() + PATIENCE)
            if place.scheme == "tls":
                self._socket = _encrypted(self._socket, place.query)
            hello = f"CONNECT {json.dumps(options)}\r\nSUB {self._inbox}.* 1\r\nPING\r\n"
            self._socket.sendall(hello.encode())
            until = time.monotonic() + PATIENCE
            while self._line(until) != b"PONG":
                pass
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        self.open = False
        self._socket.close()

    # --- the wire

    def _fill(self, until: float) -> None:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the log server does not answer")
        self._socket.settimeout(left)
        try:
            data = self._socket.recv(1 << 18)
        except TimeoutError:
            raise TimeoutError("the log server does not answer") from None
        if not data:
            self.open = False
            raise ConnectionResetError("the log server has closed the connection")
        self._received += data

    def _line(self, until: float) -> bytes:
        while (end := self._received.find(b"\r\n")) < 0:
            self._fill(until)
        line, self._received = self._received[:end], self._received[end + 2 :]
        if line.startswith(b"-ERR"):
            self.open = False
            raise PermissionError(f"the log server refuses: {line[5:].decode('utf-8', 'replace')}")
        return line

    def _bytes(self, count: int, until: float) -> bytes:
        while len(self._received) < count:
            if count - len(self._received) > 1 << 19:
                self._fill_much(count - len(self._received), until)
            else:
                self._fill(until)
        data, self._received = self._received[:count], self._received[count:]
        return data

    def _fill_much(self, count: int, until: float) -> None:
        """As ``_fill`` for a large message, without moving it around again with each piece."""
        parts = [self._received]
        while count > 0:
            self._received = b""
            self._fill(until)
            parts.append(self._received)
            count -= len(self._received)
        self._received = b"".join(parts)

    def _message(self, until: float) -> Message:
        """The next message for one of our subscriptions."""
        while True:
            message = self._understand(self._line(until), until)
            if message is not None:
                return message

    def _understand(self, line: bytes, until: float) -> Message | None:
        """The message that ``line`` announces, if it does; a question of the server is answered."""
        if line == b"PING":
            self._socket.sendall(b"PONG\r\n")
        if not line.startswith((b"MSG ", b"HMSG ")):
            return None
        words = line.decode().split(" ")
        with_headers = words[0] == "HMSG"
        total = int(words[-1])
        head = int(words[-2]) if with_headers else 0
        reply = words[3] if len(words) == (6 if with_headers else 5) else ""
        data = self._bytes(total + 2, until)
        return Message(int(words[2]), words[1], reply, data[:head], data[head:-2])

    # --- what it is for

    def publish(self, subject: str, data: bytes, reply: str = "") -> None:
        self._socket.settimeout(PATIENCE)
        self._socket.sendall(f"PUB {subject} {reply} {len(data)}\r\n".encode() + data + b"\r\n")

    def inbox(self) -> str:
        """A subject of our own, to which answers may be sent."""
        self._asked += 1
        return f"{self._inbox}.{self._asked}"

    def subscribe(self, subject: str | None = None) -> tuple[int, str]:
        """A subscription to ``subject``, or to one of our own: its number, and the subject."""
        self._subscribed += 1
        subject = subject or f"{self._inbox}-{self._subscribed}"
        self._socket.sendall(f"SUB {subject} {self._subscribed}\r\n".encode())
        return self._subscribed, subject

    def receive(self, inbox: str, until: float) -> Message:
        """The next message there."""
        for i, message in enumerate(self._waiting):
            if message.subject == inbox:
                return self._waiting.pop(i)
        while True:
            message = self._message(until)
            if message.subject == inbox:
                return message
            self._waiting.append(message)

    def poll(self, patience: float) -> Message | None:
        """The next message for whatever inbox, if one comes in time."""
        if self._waiting:
            return self._waiting.pop(0)
        until = time.monotonic() + max(patience, 0.0)
        while True:
            if b"\r\n" in self._received:
                message = self._understand(self._line(until), time.monotonic() + PATIENCE)
                if message is not None:
                    return message
                continue
            if isinstance(self._socket, ssl.SSLSocket):
                # What can be read there need not be for us, and what is for us may have been read already.
                try:
                    self._fill(max(until, time.monotonic() + 0.001))
                except TimeoutError:
                    return None
                continue
            ready, _, _ = select.select([self._socket], [], [], max(until - time.monotonic(), 0.0))
            if not ready:
                return None
            self._fill(time.monotonic() + PATIENCE)

    def answers(self) -> bool:
        """Whether it still works: nobody may have looked after it for a while. What came meanwhile is for
        nobody."""
        self._waiting.clear()
        try:
            self._socket.settimeout(PATIENCE)
            self._socket.sendall(b"PING\r\n")
            until = time.monotonic() + PATIENCE
            while (line := self._line(until)) != b"PONG":
                self._understand(line, until)
        except OSError:
            self.open = False
        return self.open

    def request(self, subject: str, data: bytes, patience: float = PATIENCE) -> bytes:
        return self.answer(self.send(subject, data), subject, time.monotonic() + patience)

    def send(self, subject: str, data: bytes) -> str:
        """A request; returns where its answer comes."""
        inbox = self.inbox()
        self.publish(subject, data, inbox)
        return inbox

    def answer(self, inbox: str, subject: str, until: float) -> bytes:
        message = self.receive(inbox, until)
        if message.status == "503":
            raise ConnectionRefusedError(f"nobody answers on {subject}; is the agent there?")
        return message.data

    def ask(self, subject: str, question: dict[str, Any] | None = None) -> dict[str, Any]:
        """One question to the JetStream interface; its answer, an error included."""
        data = b"" if question is None else json.dumps(question).encode()
        answer: dict[str, Any] = json.loads(self.request(f"$JS.API.{subject}", data))
        return answer

    def extent(self, stream: str) -> tuple[int, int]:
        """The position of the first record that is left and the one after the last."""
        answer = self.ask(f"STREAM.INFO.{stream}")
        if "error" in answer:
            raise Hole(f"the log has no {stream}: {answer['error'].get('description')}")
        state = answer["state"]
        return max(state["first_seq"], 1) - 1, state["last_seq"]

    def read(self, stream: str, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The records from position ``first`` to before ``end``, every one of them, or :class:`Hole`."""
        inbox = self.inbox()
        while first < end:
            question = {"seq": first + 1, "batch": min(_AT_ONCE, end - first), "max_bytes": _MAX_BYTES}
            self.publish(f"$JS.API.DIRECT.GET.{stream}", json.dumps(question).encode(), inbox)
            while True:
                message = self.receive(inbox, time.monotonic() + PATIENCE)
                if message.status:
                    if message.status == "204" and first != question["seq"] - 1:
                        break
                    raise Hole(
                        f"{stream} has no record at position {first} ({message.status}); "
                        "it has been trimmed, or its end was lost"
                    )
                position = int(message.header("Nats-Sequence")) - 1
                if position != first:
                    raise Hole(f"{stream} has no records from position {first} to {position}; trimmed")
                first += 1
                yield position, message.data


def _encrypted(connected: socket.socket, files: str) -> ssl.SSLSocket:
    """``files``: what the URL says about the certificates."""
    told = dict(parse_qsl(files))
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=told["ca"])
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(told["certificate"], told["key"])
    return context.wrap_socket(connected, server_hostname=told["server"])


class Server(NamedTuple):
    """Where a server is and who asks. A server that is away for a while is waited for. ``whose``: what asks
    on one thread at a time; it has a connection of its own in this process."""

    url: str
    user: str | None
    password: str | None
    whose: str = ""

    def request(self, subject: str, data: bytes, patience: float) -> bytes:
        """Repeated until somebody answers: whoever it is must not mind."""
        until = time.monotonic() + patience
        while True:
            try:
                left = max(until - time.monotonic(), 0.1)
                return shared(*self).request(subject, data, left)
            except OSError as error:
                _wait_or_raise(error, until)

    def request_all(self, subject: str, data: Iterable[bytes], patience: float) -> Iterator[bytes]:
        """As ``request`` for each of ``data``, in order, several on their way at a time."""
        waiting: deque[tuple[str, bytes]] = deque()
        connection: Connection | None = None
        until = time.monotonic() + patience

        def settle(most: int) -> Iterator[bytes]:
            nonlocal connection, until
            while len(waiting) > most:
                try:
                    if connection is None:
                        connection = shared(*self)
                        again = [each for _, each in waiting]
                        waiting.clear()
                        for each in again:
                            waiting.append((connection.send(subject, each), each))
                    yield connection.answer(waiting[0][0], subject, until)
                    waiting.popleft()
                    until = time.monotonic() + patience
                except OSError as error:
                    connection = None
                    _wait_or_raise(error, until)

        for each in data:
            inbox = ""
            if connection is not None:
                try:
                    inbox = connection.send(subject, each)
                except OSError as error:
                    connection = None
                    _wait_or_raise(error, until)
            waiting.append((inbox, each))
            yield from settle(_OUTSTANDING if connection is not None else 0)
        yield from settle(0)

    def read(self, stream: str, first: int, end: int, patience: float) -> Iterator[tuple[int, bytes]]:
        """As :meth:`Connection.read`."""
        until = time.monotonic() + patience
        while first < end:
            try:
                for position, data in shared(*self).read(stream, first, end):
                    yield position, data
                    first = position + 1
                    until = time.monotonic() + patience
            except OSError as error:
                _wait_or_raise(error, until)


def _wait_or_raise(error: OSError, until: float) -> None:
    if isinstance(error, Hole | PermissionError) or time.monotonic() > until:
        raise error
    time.sleep(_PAUSE)


_shared: dict[tuple[str, str | None, str | None, str], Connection] = {}


def shared(url: str, user: str | None, password: str | None, whose: str) -> Connection:
    """A connection that this process keeps for its next task."""
    key = (url, user, password, whose)
    connection = _shared.get(key)
    if connection is not None and not connection.answers():
        connection.close()
        connection = None
    if connection is None:
        connection = _shared[key] = Connection(url, user, password)
    return connection
