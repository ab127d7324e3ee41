"""The link emulator on this machine: what one relay carries, and by how much it is late. Prints JSON.

Sender, relay and receiver are processes of their own. ``mb_per_cpu_s`` is what the relay carries for each
second of a core that it uses; an excess is the time from sending to receiving beyond the delay asked for.
"""

import asyncio
import json
import multiprocessing
import os
import socket
import statistics
import struct
import time
from multiprocessing.connection import Connection
from typing import Any

from anabranch.site.wan import Wan
from anabranch.topology import Topology

DELAY_MS = 50
SECONDS = 5.0
MESSAGE = 1 << 16
HEAD = struct.Struct("d")


def receive(found: Connection) -> None:
    """Serves one connection; reports bytes, seconds and the excess of each message, in milliseconds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found.send(listener.getsockname())
        connection, _ = listener.accept()
    buffer, total, excess = bytearray(MESSAGE), 0, []
    with connection, connection.makefile("rb", buffering=MESSAGE) as stream:
        first = None
        while stream.readinto(buffer) == MESSAGE:
            now = time.monotonic()
            first = first or now
            total += MESSAGE
            excess.append((now - HEAD.unpack_from(buffer)[0]) * 1000 - DELAY_MS)
    found.send((total, now - (first or now), excess))


def send(address: tuple[str, int], rate: float | None) -> None:
    """Messages of ``MESSAGE`` bytes for ``SECONDS``, ``rate`` bytes a second or as fast as they are taken."""
    message = bytearray(MESSAGE)
    with socket.create_connection(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # what is sent before the handshake over the emulated link is over, waits for it
        time.sleep(4 * DELAY_MS / 1000)
        begun, sent = time.monotonic(), 0
        while (now := time.monotonic()) < begun + SECONDS:
            if rate and sent > rate * (now - begun):
                time.sleep(0.0005)
                continue
            HEAD.pack_into(message, 0, time.monotonic())
            connection.sendall(message)
            sent += MESSAGE


async def measure(rate: float | None) -> dict[str, Any]:
    processes = multiprocessing.get_context("spawn")
    here, there = processes.Pipe()
    receiver = processes.Process(target=receive, args=(there,))
    receiver.start()
    server = await asyncio.to_thread(here.recv)
    wan = Wan(Topology.from_rtt([[0, 2 * DELAY_MS], [2 * DELAY_MS, 0]], ["a", "b"]))
    await wan.start({"b": server})
    used = time.process_time()
    sender = processes.Process(target=send, args=(wan.address("a", "b"), rate))
    sender.start()
    total, seconds, excess = await asyncio.to_thread(here.recv)
    used = time.process_time() - used
    await wan.close()
    for process in (sender, receiver):
        process.join()
    report = {"mb_per_s": total / seconds / 1e6, "mb_per_cpu_s": total / used / 1e6}
    if rate:
        report |= {"excess_ms": percentiles(excess), "least_excess_ms": min(excess), "messages": len(excess)}
    return {name: value if isinstance(value, dict) else round(value, 3) for name, value in report.items()}


async def timers() -> dict[str, float]:
    """How late a bare timer of the event loop is: what no relay can be better than, on this machine now."""
    loop = asyncio.get_running_loop()
    late = []
    until = loop.time() + SECONDS
    while loop.time() < until:
        due = loop.time() + 0.0013
        await asyncio.sleep(0.0013)
        late.append((loop.time() - due) * 1000)
    return percentiles(late)


def percentiles(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=1000)
    figures = {"p50": cuts[499], "p99": cuts[989], "p99.9": cuts[998], "max": max(values)}
    return {name: round(value, 2) for name, value in figures.items()}


if __name__ == "__main__":
    result = {
        "delay_ms": DELAY_MS,
        "message_bytes": MESSAGE,
        "load_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "bare_timer_late_ms": asyncio.run(timers()),
        "at_50_mb_per_s": asyncio.run(measure(50e6)),
        "at_full_speed": asyncio.run(measure(None)),
    }
    print(json.dumps(result))
