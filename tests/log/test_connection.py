"""A connection works or is lost: it does not hang, and is not given up while anything still comes."""

import asyncio
import contextlib
from typing import Any

import pytest

from anabranch.log import connection as module
from anabranch.log.connection import Access, Connection, connect
from anabranch.log.server import Server


class Valve:
    """Between client and server: what the server says comes only as far as it is let through."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self.allowed = 0
        self.open = True
        self.more = asyncio.Event()
        self._to = port
        self._tasks: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []

    @contextlib.asynccontextmanager
    async def running(self) -> Any:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        yield self
        server.close()
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers += [writer, back]
        self._tasks.append(asyncio.create_task(self._up(reader, back)))
        self._tasks.append(asyncio.create_task(self._down(there, writer)))

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.transport.abort()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            while not self.open and not self.allowed:
                self.more.clear()
                await self.more.wait()
            data = await reader.read(65536 if self.open else self.allowed)
            if not data:
                writer.transport.abort()
                return
            self.allowed = max(0, self.allowed - len(data))
            writer.write(data)

    def let(self, bytes: int) -> None:
        self.allowed += bytes
        self.more.set()


async def connected(port: int, lost: asyncio.Event) -> Connection:
    return await connect(Access(f"nats://127.0.0.1:{port}"), "test", lost.set)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SIGN_OF_LIFE", 0.1)


def test_a_server_that_falls_silent_is_noticed(server: Server) -> None:
    async def work() -> None:
        async with Valve(server.settings.port).running() as valve:
            lost = asyncio.Event()
            connection = await connected(valve.port, lost)
            valve.open = False
            await lost.wait()
            assert not connection.alive
            with pytest.raises(ConnectionError):
                await connection.flush()
            await connection.close()

    asyncio.run(asyncio.wait_for(work(), 30))


def test_a_server_that_dies_is_noticed_at_once(server: Server) -> None:
    async def work() -> None:
        lost = asyncio.Event()
        connection = await connected(server.settings.port, lost)
        waiting = asyncio.create_task(connection.flush())
        await waiting
        server.kill()
        await lost.wait()
        await connection.close()

    asyncio.run(asyncio.wait_for(work(), 30))


def test_a_long_message_on_a_slow_link_is_waited_for_and_the_connection_lives_on(server: Server) -> None:
    """Answers to signs of life come behind it, long after they were asked for."""

    async def work() -> None:
        async with Valve(server.settings.port).running() as valve:
            lost = asyncio.Event()
            connection = await connected(valve.port, lost)
            came: asyncio.Queue[Any] = asyncio.Queue()
            await connection.client.subscribe("long", cb=came.put)
            await connection.flush()
            valve.open = False
            await connection.client.publish("long", b"x" * 400_000)
            for _ in range(15):
                valve.let(30_000)
                await asyncio.sleep(0.1)
            assert len((await came.get()).data) == 400_000
            valve.open = True
            valve.more.set()
            for _ in range(3):
                await connection.flush()
                await asyncio.sleep(0.15)
            assert connection.alive
            assert not lost.is_set()
            await connection.close()

    asyncio.run(asyncio.wait_for(work(), 30))
