"""The link emulator with real connections: what is promised of bytes, faults, ends and memory."""

import asyncio
import contextlib
import math
import random
import socket
import struct
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch.link_faults import Cut, FaultError, Reopen, Slow, Stall
from anabranch.sim.faults import Crash
from anabranch.site.wan import Heal, LinkStatus, Reset, Wan
from anabranch.sites import Site, constant
from anabranch.topology import Topology, TopologyError

THERE, BACK = 0.02, 0.01
SITES = Topology(
    (Site("a"), Site("b")), (constant("a", "b", int(THERE * 1e6)), constant("b", "a", int(BACK * 1e6)))
)
PATIENCE = 10.0
QUIET = 0.06
"""Longer than any way through the links, and how long nothing must happen where nothing may."""


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 3 * PATIENCE))


class End:
    """One end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.loop = asyncio.get_running_loop()
        connection.setblocking(False)

    async def send(self, data: bytes) -> None:
        await asyncio.wait_for(self.loop.sock_sendall(self.socket, data), PATIENCE)

    async def receive(self, count: int) -> bytes:
        """So many bytes, or fewer if the other end has no more."""
        data = b""
        while len(data) < count:
            part = await asyncio.wait_for(self.loop.sock_recv(self.socket, count - len(data)), PATIENCE)
            if not part:
                break
            data += part
        return data

    def hears_nothing(self) -> bool:
        """No byte, no FIN and no RST has come."""
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def abort(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class Server:
    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.address: tuple[str, int] = self.listener.getsockname()
        self.accepted: list[End] = []

    async def accept(self) -> End:
        loop = asyncio.get_running_loop()
        connection, _ = await asyncio.wait_for(loop.sock_accept(self.listener), PATIENCE)
        self.accepted.append(End(connection))
        return self.accepted[-1]

    def nobody_comes(self) -> bool:
        try:
            self.listener.accept()[0].close()
        except BlockingIOError:
            return True
        return False


class World:
    """Two sites, a server at each, and the links between them."""

    def __init__(self, **options: Any) -> None:
        self.wan = Wan(SITES, **options)
        self.servers = {"a": Server(), "b": Server()}
        self.clients: list[End] = []

    async def connect(self, source: str = "a", target: str = "b") -> End:
        client = socket.socket()
        client.setblocking(False)
        self.clients.append(End(client))
        await asyncio.get_running_loop().sock_connect(client, self.wan.address(source, target))
        return self.clients[-1]

    async def pair(self, source: str = "a", target: str = "b") -> tuple[End, End]:
        """Both ends of a connection from ``source`` to the server of ``target``."""
        return await self.connect(source, target), await self.servers[target].accept()

    def status(self, source: str = "a", target: str = "b") -> LinkStatus:
        return next(s for s in self.wan.status() if (s.source, s.target) == (source, target))

    def close(self) -> None:
        for server in self.servers.values():
            server.listener.close()
            for end in server.accepted:
                end.socket.close()
        for end in self.clients:
            end.socket.close()


@asynccontextmanager
async def world(**options: Any) -> AsyncIterator[World]:
    made = World(**options)
    try:
        await made.wan.start({site: server.address for site, server in made.servers.items()})
        yield made
    finally:
        await made.wan.close()
        made.close()


def forever(kind: Any, a: str = "a", b: str = "b", *more: float) -> Any:
    return kind(a, b, 0.0, math.inf, *more)


def test_bytes_take_the_delay_of_their_direction() -> None:
    async def test() -> None:
        async with world() as w:
            begun = time.monotonic()
            client, server = await w.pair()
            # SYN there, SYN-ACK back, ACK there
            assert time.monotonic() - begun >= 2 * THERE + BACK
            for source, target, delay in ((client, server, THERE), (server, client, BACK)):
                begun = time.monotonic()
                await source.send(b"hello")
                assert await target.receive(5) == b"hello"
                assert time.monotonic() - begun >= delay

    run(test())


def test_what_a_client_says_at_once_counts_as_said_when_it_is_connected() -> None:
    async def test() -> None:
        async with world() as w:
            begun = time.monotonic()
            client = await w.connect()
            await client.send(b"hello")
            server = await w.servers["b"].accept()
            assert await server.receive(5) == b"hello"
            assert time.monotonic() - begun >= 2 * THERE + BACK

    run(test())


def test_within_a_site_there_is_no_relay() -> None:
    async def test() -> None:
        async with world() as w:
            assert w.wan.address("a", "a") == w.servers["a"].address
            w.wan.set_server("a", "127.0.0.1", 1)
            assert w.wan.address("a", "a") == ("127.0.0.1", 1)
            assert w.wan.address("a", "b")[0] == "127.0.0.1"

    run(test())


@pytest.mark.parametrize("seed", range(6))
def test_under_any_schedule_all_bytes_arrive_in_order(seed: int) -> None:
    chance = random.Random(seed)

    def fault() -> Any:
        a, b = chance.choice([("a", "b"), ("b", "a")])
        at = chance.uniform(0, 0.3)
        until = at + chance.uniform(0.01, 0.15)
        kind = chance.choice([Cut, Stall, Slow])
        return Slow(a, b, at, until, chance.uniform(0, 3)) if kind is Slow else kind(a, b, at, until)

    schedule = [fault() for _ in range(12)]
    said = [(chance.randbytes(300_000), chance.randbytes(300_000)) for _ in range(4)]

    async def talk(end: End, data: bytes, answer: bytes) -> None:
        async def speak() -> None:
            for at in range(0, len(data), 30_000):
                await end.send(data[at : at + 30_000])
                await asyncio.sleep(0.02)
            end.socket.shutdown(socket.SHUT_WR)

        async with asyncio.TaskGroup() as tasks:
            heard = tasks.create_task(end.receive(len(answer) + 1))
            tasks.create_task(speak())
        assert heard.result() == answer

    async def test() -> None:
        async with world(jitter=0.005, seed=seed, window=1 << 16) as w:
            pairs = [await w.pair(*chance.choice([("a", "b"), ("b", "a")])) for _ in said]
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(w.wan.play(schedule))
                for (client, server), (there, back) in zip(pairs, said, strict=True):
                    tasks.create_task(talk(client, there, back))
                    tasks.create_task(talk(server, back, there))
            while any(s.connections for s in w.wan.status()):
                await asyncio.sleep(0.005)
            assert sum(s.delivered for s in w.wan.status()) == 8 * 300_000
            assert not any(s.held or s.faults for s in w.wan.status())

    run(test())


@pytest.mark.parametrize("kind", [Cut, Stall])
def test_a_direction_that_is_blocked_delivers_nothing_and_loses_nothing(kind: Any) -> None:
    async def test() -> None:
        async with world() as w:
            client, server = await w.pair()
            # also what is under way when it begins
            await client.send(b"under way, ")
            await asyncio.sleep(THERE / 4)
            w.wan.apply(forever(kind))
            await client.send(b"held")
            client.socket.shutdown(socket.SHUT_WR)
            await asyncio.sleep(QUIET)
            assert server.hears_nothing()
            assert w.status().held == len(b"under way, held")
            assert [fault.kind for fault in w.status().faults] == [kind.__name__.lower()]
            await server.send(b"the other direction is free")
            assert await client.receive(27) == b"the other direction is free"
            begun = time.monotonic()
            w.wan.apply(Heal("a", "b"))
            assert await server.receive(99) == b"under way, held"
            assert time.monotonic() - begun >= (THERE if kind is Cut else 0)

    run(test())


@pytest.mark.parametrize("direction", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("kind", [Cut, Stall])
def test_no_new_connection_gets_through_a_blocked_direction(kind: Any, direction: tuple[str, str]) -> None:
    async def test() -> None:
        async with world() as w:
            w.wan.apply(forever(kind, *direction))
            client = await w.connect()
            await client.send(b"hello")
            await asyncio.sleep(QUIET + 0.02)
            assert w.servers["b"].nobody_comes()
            assert client.hears_nothing()
            w.wan.apply(Heal(*direction))
            server = await w.servers["b"].accept()
            assert await server.receive(5) == b"hello"

    run(test())


def test_a_server_never_hears_of_a_client_that_gave_up_during_a_cut() -> None:
    async def test() -> None:
        async with world() as w:
            w.wan.apply(forever(Cut))
            for give_up in (End.abort, lambda end: end.socket.close()):
                client = await w.connect()
                await asyncio.sleep(0.01)
                give_up(client)
            while w.status().connections:
                await asyncio.sleep(0.001)
            w.wan.apply(Heal("a", "b"))
            await asyncio.sleep(QUIET)
            assert w.servers["b"].nobody_comes()

    run(test())


def test_slow_delays_one_direction_and_ends_by_itself() -> None:
    async def test() -> None:
        async with world() as w:
            client, server = await w.pair()
            w.wan.apply(Slow("a", "b", 5.0, 5.1, 3.0))
            assert [(fault.kind, fault.factor) for fault in w.status().faults] == [("slow", 3.0)]
            begun = time.monotonic()
            await client.send(b"x")
            assert await server.receive(1) == b"x"
            assert time.monotonic() - begun >= 3 * THERE
            while w.status().faults:
                await asyncio.sleep(0.005)
            assert time.monotonic() - begun >= 0.09

    run(test())


def test_a_server_that_does_not_read_holds_up_no_other_connection_and_memory_is_bounded() -> None:
    window = 1 << 17

    async def test() -> None:
        async with world(window=window) as w:
            client, _ = await w.pair()
            other_client, other_server = await w.pair()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.loop.sock_sendall(client.socket, bytes(64 << 20)), 0.3)
            assert 0 < w.status().held <= window
            await other_client.send(b"hello")
            assert await other_server.receive(5) == b"hello"

    run(test())


@pytest.mark.parametrize("kind", [Cut, Stall])
def test_memory_is_bounded_while_a_direction_is_blocked(kind: Any) -> None:
    window = 1 << 18

    async def test() -> None:
        async with world(window=window) as w:
            client, server = await w.pair()
            w.wan.apply(forever(kind))
            data = bytes(i % 251 for i in range(1000)) * 4_000
            sending = asyncio.create_task(client.send(data))
            await asyncio.sleep(0.1)
            assert 0 < w.status().held <= window
            w.wan.apply(Heal("a", "b"))
            assert await server.receive(len(data)) == data
            await sending

    run(test())


def test_a_client_that_sends_single_bytes_is_bounded_too() -> None:
    async def test() -> None:
        async with world(window=1 << 16) as w:
            client, server = await w.pair()
            client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            w.wan.apply(forever(Stall))
            for _ in range(2000):
                await client.send(b"x")
                await asyncio.sleep(0)
            assert w.status().held <= 1 << 16
            w.wan.apply(Heal("a", "b"))
            assert await server.receive(2000) == b"x" * 2000

    run(test())


def broken(end: End) -> Coroutine[Any, Any, None]:
    async def check() -> None:
        with pytest.raises(ConnectionResetError):
            await end.receive(1)

    return check()


def test_reset_breaks_both_ends_of_what_one_site_has_opened_to_the_other() -> None:
    async def test() -> None:
        async with world() as w:
            client, server = await w.pair("a", "b")
            other_client, other_server = await w.pair("b", "a")
            w.wan.apply(Reset("a", "b"))
            await broken(client)
            await broken(server)
            assert w.status("a", "b").connections == 0
            await other_client.send(b"hello")
            assert await other_server.receive(5) == b"hello"
            # the branches from a to b are on connections that b has opened
            w.wan.apply(Reopen("a", "b", 0.0))
            await broken(other_client)
            await broken(other_server)

    run(test())


@pytest.mark.parametrize("opened", [("a", "b"), ("b", "a")])
def test_connections_survive_a_short_cut_and_are_reset_after_a_long_one(opened: tuple[str, str]) -> None:
    async def test() -> None:
        async with world(reset_after=0.05) as w:
            client, server = await w.pair(*opened)
            w.wan.apply(Cut("a", "b", 0.0, 0.01))
            await client.send(b"hello")
            assert await server.receive(5) == b"hello"
            w.wan.apply(Cut("a", "b", 0.0, 0.06))
            waiting = await w.connect(*opened)
            await broken(client)
            await broken(server)
            await waiting.send(b"new")
            assert await (await w.servers[opened[1]].accept()).receive(3) == b"new"

    run(test())


def test_each_end_can_finish_by_itself() -> None:
    async def test() -> None:
        async with world() as w:
            client, server = await w.pair()
            await client.send(b"question")
            client.socket.shutdown(socket.SHUT_WR)
            assert await server.receive(99) == b"question"
            await server.send(b"answer")
            server.socket.close()
            assert await client.receive(99) == b"answer"
            while w.status().connections:
                await asyncio.sleep(0.001)

    run(test())


def test_an_rst_takes_the_way_through_the_link() -> None:
    async def test() -> None:
        async with world() as w:
            client, server = await w.pair()
            w.wan.apply(forever(Cut))
            client.abort()
            await asyncio.sleep(QUIET)
            assert server.hears_nothing()
            w.wan.apply(Heal("a", "b"))
            await broken(server)
            client, server = await w.pair()
            server.abort()
            await broken(client)
            assert w.status().connections == 0

    run(test())


def test_an_end_that_breaks_while_it_is_written_to_is_told_to_the_other() -> None:
    async def test() -> None:
        async with world(window=1 << 17) as w:
            client, server = await w.pair()
            sending = asyncio.create_task(client.send(bytes(64 << 20)))
            await asyncio.sleep(0.1)
            server.abort()
            with pytest.raises(OSError):  # noqa: PT011 - EPIPE or ECONNRESET
                await sending
            while w.status().connections:
                await asyncio.sleep(0.001)

    run(test())


def test_a_server_may_move_and_a_site_without_one_refuses() -> None:
    async def test() -> None:
        async with world() as w:
            old_client, old_server = await w.pair()
            moved = Server()
            w.wan.set_server("b", *moved.address)
            client = await w.connect()
            end = await moved.accept()
            end.socket.close()
            moved.listener.close()
            assert await client.receive(1) == b""
            await broken(await w.connect())
            await old_client.send(b"hello")
            assert await old_server.receive(5) == b"hello"

    run(test())


def test_what_is_closed_is_gone() -> None:
    async def test() -> None:
        async with world() as w:
            address = w.wan.address("a", "b")
            client, _ = await w.pair()
            await w.connect()
            w.wan.apply(forever(Cut))
            await w.wan.close()
            with contextlib.suppress(ConnectionResetError):
                assert await client.receive(1) == b""
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address)
            assert w.wan.status() == ()
            with pytest.raises(RuntimeError, match="call start first"):
                w.wan.address("a", "b")
            # and may be started again
            await w.wan.start({"b": w.servers["b"].address})
            with pytest.raises(RuntimeError, match="runs already"):
                await w.wan.start({})
            with pytest.raises(TopologyError, match="'a' has no server"):
                w.wan.address("a", "a")
            await broken(await w.connect("b", "a"))
            assert w.status().faults == ()

    run(test())


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Crash("a", 1.0), "Crash: no link suffers that"),
        (Cut("a", "c", 0, 1), "there is no site 'c'; the sites are a, b"),
        (Cut("a", "a", 0, 1), "a and b are both 'a'"),
        (Cut("a", "b", 2, 2), "it ends at 2, not after it began at 2; raise until"),
        (Stall("a", "b", -1, 2), "at is -1; give seconds"),
        (Stall("a", "b", 0, math.nan), "it ends at nan"),
        (Slow("a", "b", 0, 1, -1), "factor is -1; it must be a number, 0 or more"),
        (Reset("a", "b", math.inf), "at is inf"),
    ],
)
def test_a_schedule_that_cannot_be_played_is_refused_before_it_begins(fault: Any, message: str) -> None:
    async def test() -> None:
        async with world() as w:
            with pytest.raises((FaultError, TopologyError), match=message):
                await w.wan.play([forever(Cut), fault])
            assert w.status().faults == ()

    run(test())


def test_a_schedule_is_played_in_its_order_until_its_last_fault_is_over() -> None:
    async def test() -> None:
        async with world() as w:
            begun = time.monotonic()
            playing = asyncio.create_task(
                w.wan.play(
                    [
                        Heal("b", "a", 0.06),
                        Stall("b", "a", 0.03, math.inf),
                        Slow("b", "a", 0.09, 0.1, 2.0),
                        Cut("a", "b", 0.0, 0.12),
                    ]
                )
            )
            await asyncio.sleep(0)
            assert [fault.kind for fault in w.status("a", "b").faults] == ["cut"]
            while not w.status("b", "a").faults:
                await asyncio.sleep(0.001)
            assert time.monotonic() - begun >= 0.03
            await playing
            assert time.monotonic() - begun >= 0.12
            assert w.status("b", "a").faults == ()

    run(test())


@pytest.mark.parametrize("options", [{"window": 100}, {"jitter": -1.0}, {"reset_after": math.nan}])
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"window|jitter"):
        Wan(SITES, **options)
