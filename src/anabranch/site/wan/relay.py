"""Connections through an emulated link.

A relay listens where one site's processes look for another site's server. What a client sends travels in one
lane, the server's answers in another.

The kernel completes a client's handshake with the relay at once, so the relay performs another one over the
lanes: SYN there, SYN-ACK back, and there again what the client has to say. Only then is the server connected
to. A link that lets nothing through so leaves a client connected to nobody: no byte, no FIN, no RST.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable

from anabranch.site.wan.flow import Clock, Flow
from anabranch.site.wan.shaping import Direction, Lane, Signal

Address = tuple[str, int]

_BACKLOG = 1024
_PATIENCE = 0.1
"""Seconds until a relay that may open no further file tries again."""

_RST_WHEN_CLOSED = struct.pack("ii", 1, 0)


class Connection:
    """Between one client and the server; ``closed`` is called once, when it is over."""

    def __init__(
        self,
        client: socket.socket,
        there: Direction,
        back: Direction,
        clock: Clock,
        server: Callable[[], Address | None],
        closed: Callable[[Connection], None],
    ) -> None:
        self.out = Flow(self, Lane(there), clock)
        self.back = Flow(self, Lane(back), clock)
        self.established = False
        self._client = client
        self._server: socket.socket | None = None
        self._address = server
        self._closed: Callable[[Connection], None] | None = closed
        self._syn_arrived = False
        self._opening: asyncio.Task[None] | None = None
        self._ended = 0
        self._broken = False
        self.out.put(Signal.SYN)
        self.out.read_from(client)
        self.back.write_to(client)

    def arrived(self, flow: Flow, signal: Signal) -> bool:
        match signal:
            case Signal.SYN:
                return self._on_syn()
            case Signal.SYN_ACK:
                # from now on the client would be sending: the SYN, still at the front, sets out as the ACK
                self.established = True
                self.out.again()
            case Signal.FIN:
                self._finish(flow)
            case Signal.RST:
                if flow.target is not None:
                    _reset(flow.target)
                self.close()
        return True

    def _on_syn(self) -> bool:
        if self.established:
            self._opening = asyncio.get_running_loop().create_task(self._open())
        elif not self._syn_arrived:
            self._syn_arrived = True
            self.back.put(Signal.SYN_ACK)
        return self.established

    async def _open(self) -> None:
        address = self._address()
        server = socket.socket()
        server.setblocking(False)
        try:
            if address is None:
                raise ConnectionRefusedError
            await asyncio.get_running_loop().sock_connect(server, address)
        except BaseException as error:
            server.close()
            if not isinstance(error, OSError):
                raise
            self.source_broke(self.back)
            return
        _undelayed(server)
        self._server = server
        self.back.read_from(server)
        self.out.write_to(server)

    def _finish(self, flow: Flow) -> None:
        assert flow.target is not None
        try:
            flow.target.shutdown(socket.SHUT_WR)
        except OSError:
            self.target_broke(flow)
            return
        self._ended += 1
        if self._ended == 2:
            self.close()

    def ended(self, flow: Flow) -> None:
        if not self.established and not flow.lane.held:
            # a client that gave up before it was connected: on a real link the server never hears of it
            self.close()
        else:
            flow.put(Signal.FIN)

    def source_broke(self, flow: Flow) -> None:
        """One end is gone; the other learns it when the RST has come through."""
        if self._broken or not self.established:
            self.close()
            return
        self._broken = True
        other = self._other(flow)
        flow.stop_reading()
        other.stop_reading()
        other.stop_writing()
        flow.put(Signal.RST)

    def target_broke(self, flow: Flow) -> None:
        self.source_broke(self._other(flow))

    def _other(self, flow: Flow) -> Flow:
        return self.back if flow is self.out else self.out

    def reset(self) -> None:
        """Breaks it: both ends see an RST, at once."""
        for end in (self._client, self._server):
            if end is not None:
                _reset(end)
        self.close()

    def close(self) -> None:
        closed, self._closed = self._closed, None
        if closed is None:
            return
        self.out.close()
        self.back.close()
        if self._opening is not None:
            self._opening.cancel()
        self._client.close()
        if self._server is not None:
            self._server.close()
        closed(self)


class Relay:
    """Listens on a free port of 127.0.0.1 from the moment it is made. ``server`` may be changed at any time;
    it is where new connections lead, and None refuses them."""

    def __init__(self, there: Direction, back: Direction, clock: Clock, server: Address | None) -> None:
        self.there = there
        self.back = back
        self.server = server
        self.connections: dict[Connection, None] = {}
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._retry: asyncio.Handle | None = None
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self._listener.setblocking(False)
        self.address: Address = self._listener.getsockname()
        self._listen()

    def _listen(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError:
            # no descriptor is left: those who wait are still there when there is one again
            self._loop.remove_reader(self._listener)
            self._retry = self._loop.call_later(_PATIENCE, self._listen)
            return
        client.setblocking(False)
        _undelayed(client)
        connection = Connection(client, self.there, self.back, self._clock, lambda: self.server, self._forget)
        self.connections[connection] = None

    def _forget(self, connection: Connection) -> None:
        self.connections.pop(connection, None)

    def reset(self, established_only: bool = False) -> None:
        """Breaks the connections; those that are being opened only if they are meant too."""
        for connection in list(self.connections):
            if connection.established or not established_only:
                connection.reset()

    def close(self) -> None:
        self._loop.remove_reader(self._listener)
        if self._retry is not None:
            self._retry.cancel()
        self._listener.close()
        for connection in list(self.connections):
            connection.close()


def _undelayed(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _reset(end: socket.socket) -> None:
    """Lets the socket, when it is closed, end its connection with an RST."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST_WHEN_CLOSED)
