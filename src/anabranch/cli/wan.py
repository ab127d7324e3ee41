"""``anabranch wan``: the link emulator by itself, driven by files and by lines on standard input."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from anabranch.cli.mistakes import MISTAKES, Mistake
from anabranch.durations import microseconds
from anabranch.sim.faults import load_faults
from anabranch.site.wan import COMMANDS, Fault, InForce, LinkStatus, Wan, check, parse
from anabranch.topology import Topology

_QUIT = "quit"
_STDIN = 0


class Job(msgspec.Struct, frozen=True):
    """``jitter`` and ``reset_after`` in seconds."""

    topology: Topology
    servers: dict[str, tuple[str, int]]
    faults: tuple[Fault, ...]
    jitter: float
    seed: int
    reset_after: float


def prepare(
    sites: Path,
    servers: Sequence[str],
    faults: Path | None,
    jitter: str | None,
    seed: int,
    reset_after: str | None,
) -> Job:
    """Reads and checks everything; whatever is wrong is a sentence that names its place."""
    topology = Topology.load(sites)
    return Job(
        topology,
        _servers(servers, topology),
        () if faults is None else _schedule(faults, topology),
        0.0 if jitter is None else microseconds(jitter, "--jitter") / 1e6,
        seed,
        math.inf if reset_after is None else microseconds(reset_after, "--reset-after") / 1e6,
    )


def _servers(given: Sequence[str], topology: Topology) -> dict[str, tuple[str, int]]:
    if not given:
        raise Mistake("no link leads to a server; name one with --server SITE=HOST:PORT")
    servers = {}
    for each in given:
        site, _, address = each.partition("=")
        host, _, port = address.rpartition(":")
        if not (site and host and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
            raise Mistake(f"--server {each}: write it as SITE=HOST:PORT, such as paris=127.0.0.1:4222")
        if ":" in host:
            raise Mistake(f"--server {each}: {host} is no IPv4 address; give one, or a name")
        if site not in topology.names:
            raise Mistake(
                f"--server {each}: there is no site {site!r}; the sites are {', '.join(topology.names)}"
            )
        if site in servers:
            raise Mistake(f"--server {each}: site {site!r} is there twice; give each site one server")
        servers[site] = (host, int(port))
    return servers


def _schedule(path: Path, topology: Topology) -> tuple[Fault, ...]:
    schedule: list[Fault] = []
    for i, fault in enumerate(load_faults(path)):
        try:
            schedule.append(check(fault, topology))
        except MISTAKES as error:
            raise Mistake(f"{path}: fault {i + 1}, {error}") from None
    return tuple(schedule)


async def serve(job: Job, json: bool) -> int:
    """Until it is told to stop, by a line or a signal; the exit status."""
    screen = _Json() if json else _Screen(Console())
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str] = asyncio.Queue()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, lines.put_nowait, _QUIT)
    wan = Wan(job.topology, jitter=job.jitter, seed=job.seed, reset_after=job.reset_after)
    await wan.start(job.servers)
    playing = loop.create_task(wan.play(job.faults))
    begun = time.monotonic()
    try:
        screen.links([link for link in wan.status() if link.target in job.servers])
        # a daemon: a read that blocks cannot be ended, and must not keep the process
        threading.Thread(target=_read, args=(loop, lines), daemon=True).start()
        refused = await _obey(wan, lines, screen)
        passed = time.monotonic() - begun
        screen.end(wan.status(), refused, sum(fault.at > passed for fault in job.faults))
    finally:
        playing.cancel()
        await wan.close()
    return 2 if refused else 0


async def _obey(wan: Wan, lines: asyncio.Queue[str], screen: _Screen | _Json) -> int:
    """Does what each line says; returns how many lines said nothing that can be done."""
    number = refused = 0
    while (line := (await lines.get()).partition("#")[0].strip()) != _QUIT:
        number += 1
        try:
            if line == "status":
                screen.status(wan.status())
            elif line:
                wan.apply(parse(line))
                screen.done(line)
        except MISTAKES as error:
            refused += 1
            screen.mistake(f"line {number}: {error}")
    return refused


def _read(loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[str]) -> None:
    """The lines of standard input, until it ends or nobody wants them any more. Not through ``sys.stdin``:
    the interpreter cannot end while its buffer is being read."""
    rest = b""
    try:
        while part := os.read(_STDIN, 1 << 16):
            *whole, rest = (rest + part).split(b"\n")
            for line in whole:
                loop.call_soon_threadsafe(lines.put_nowait, line.decode(errors="replace"))
        if rest:
            loop.call_soon_threadsafe(lines.put_nowait, rest.decode(errors="replace"))
    except (OSError, RuntimeError):
        return


class _Json:
    """One object a line."""

    def links(self, links: Sequence[LinkStatus]) -> None:
        self._print(
            {"links": [{"source": x.source, "target": x.target, "address": x.address} for x in links]}
        )

    def done(self, line: str) -> None:
        self._print({"done": line})

    def mistake(self, sentence: str) -> None:
        _complain(sentence)
        self._print({"mistake": sentence})

    def status(self, links: Sequence[LinkStatus]) -> None:
        self._print({"status": links})

    def end(self, links: Sequence[LinkStatus], refused: int, not_begun: int) -> None:
        self._print({"status": links, "refused": refused, "not_begun": not_begun})

    def _print(self, value: Any) -> None:
        print(msgspec.json.encode(value).decode(), flush=True)


class _Screen:
    def __init__(self, console: Console) -> None:
        self._console = console

    def links(self, links: Sequence[LinkStatus]) -> None:
        table = _table("Links", "processes at", "find the server of", "at")
        for link in links:
            table.add_row(link.source, link.target, "{}:{}".format(*link.address))
        self._console.print(table)
        self._console.print(f"\nCommands:\n{COMMANDS}\nstatus\nquit", highlight=False, markup=False)

    def done(self, line: str) -> None:
        self._console.print(f"done: {line}", highlight=False, markup=False)

    def mistake(self, sentence: str) -> None:
        _complain(sentence)

    def status(self, links: Sequence[LinkStatus]) -> None:
        table = _table("Status", "from", "to", "connections", "delivered", "held", "faults")
        for link in links:
            counts = (link.connections, link.delivered, link.held)
            faults = ", ".join(map(_described, link.faults))
            table.add_row(link.source, link.target, *(f"{count:,}" for count in counts), faults)
        self._console.print(table)

    def end(self, links: Sequence[LinkStatus], refused: int, not_begun: int) -> None:
        self.status(links)
        if not_begun:
            self._console.print(f"{not_begun} of the scheduled faults had not begun.")
        if refused:
            self._console.print(f"{refused} lines could not be done.")


def _complain(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(
            column, justify="right" if column in ("connections", "delivered", "held") else "left"
        )
    return table


def _described(fault: InForce) -> str:
    times = "" if fault.factor is None else f" {fault.factor:g} times"
    left = "until healed" if fault.left_s is None else f"for {fault.left_s:.1f} s more"
    return f"{fault.kind}{times} {left}"
