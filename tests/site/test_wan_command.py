"""``anabranch wan``: a process of its own, told by files and lines what to do."""

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli import main
from anabranch.link_faults import Cut, FaultError, Slow, Stall
from anabranch.site.wan import Heal, Reset, parse

SITES = """\
[network]
delay = "10 ms"

[sites.paris]
[sites.tokyo]
"""
FAULTS = """\
[[faults]]
type = "Stall"
a = "paris"
b = "tokyo"
at = 0
until = 0.3

[[faults]]
type = "Slow"
a = "paris"
b = "tokyo"
at = 3600
until = 3601
factor = 2
"""


class Command:
    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "anabranch", "wan", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, line: str) -> Any:
        self.say(line)
        return self.hear()

    def address(self) -> tuple[str, int]:
        (link,) = self.hear()["links"]
        assert (link["source"], link["target"]) == ("paris", "tokyo")
        return tuple(link["address"])

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, out, err


@pytest.fixture
def start() -> Iterator[Callable[..., Command]]:
    started: list[Command] = []

    def begin(*words: str) -> Command:
        started.append(Command(*words))
        return started[-1]

    yield begin
    for command in started:
        command.process.kill()
        command.process.communicate()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        yield listener


@pytest.fixture
def words(tmp_path: Path, server: socket.socket) -> tuple[str, ...]:
    (tmp_path / "sites.toml").write_text(SITES)
    (tmp_path / "faults.toml").write_text(FAULTS)
    return (str(tmp_path / "sites.toml"), "--server", f"tokyo=127.0.0.1:{server.getsockname()[1]}", "--json")


def test_it_does_what_each_line_says(
    start: Callable[..., Command], words: tuple[str, ...], server: socket.socket
) -> None:
    command = start(*words)
    address = command.address()
    with socket.create_connection(address, 10) as client:
        peer, _ = server.accept()
        with peer:
            peer.settimeout(10)
            assert command.ask("cut paris tokyo for 1 minute") == {"done": "cut paris tokyo for 1 minute"}
            client.sendall(b"hello")
            link = {}
            while not link.get("held"):
                link = command.ask("status  # of all links")["status"][0]
            assert (link["source"], link["target"], link["held"]) == ("paris", "tokyo", 5)
            (fault,) = link["faults"]
            assert fault["kind"] == "cut"
            assert 0 < fault["left_s"] <= 60
            peer.setblocking(False)
            with pytest.raises(BlockingIOError):
                peer.recv(1)
            peer.settimeout(10)
            command.ask("heal paris tokyo")
            assert peer.recv(5) == b"hello"
            command.ask("reset paris tokyo")
            with pytest.raises(ConnectionResetError):
                peer.recv(1)
    command.say("quit")
    status, out, err = command.end()
    assert (status, err) == (0, "")
    last = json.loads(out.splitlines()[-1])
    assert (last["refused"], last["not_begun"]) == (0, 0)
    assert last["status"][0]["delivered"] == 5


def test_it_plays_the_list_of_faults(
    start: Callable[..., Command], words: tuple[str, ...], server: socket.socket
) -> None:
    begun = time.monotonic()
    command = start(*words, "--faults", str(Path(words[0]).with_name("faults.toml")), "--jitter", "1 ms")
    address = command.address()
    with socket.create_connection(address, 10) as client:
        client.sendall(b"hello")
        peer, _ = server.accept()
        with peer:
            peer.settimeout(10)
            assert peer.recv(5) == b"hello"
            assert time.monotonic() - begun >= 0.3
    command.say("quit")
    status, out, _ = command.end()
    assert status == 0
    assert json.loads(out.splitlines()[-1])["not_begun"] == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_and_the_end_of_its_input_does_not(
    start: Callable[..., Command], words: tuple[str, ...], number: int
) -> None:
    command = start(*words, "--reset-after", "15 s")
    address = command.address()
    assert command.process.stdin is not None
    command.process.stdin.close()
    command.process.stdin = None
    with socket.create_connection(address, 10) as client:
        os.kill(command.process.pid, number)
        status, out, err = command.end()
        assert client.recv(1) == b""
    assert (status, err) == (0, "")
    assert json.loads(out.splitlines()[-1])["refused"] == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


def test_what_cannot_be_done_is_told_and_is_no_success(
    start: Callable[..., Command], words: tuple[str, ...]
) -> None:
    command = start(*words[:-1])
    for line in ("", "# nothing", "cut paris lima", "stall paris tokyo", "status", "quit"):
        command.say(line)
    status, out, err = command.end()
    assert status == 2
    assert err == "line 3: there is no site 'lima'; the sites are paris, tokyo\n"
    assert "done: stall paris tokyo" in out
    assert "stall until healed" in out
    assert "1 lines could not be done." in out


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (("--server", "lima=127.0.0.1:1"), "there is no site 'lima'; the sites are paris, tokyo"),
        (("--server", "paris"), "write it as SITE=HOST:PORT"),
        (("--server", "paris=localhost:99999"), "write it as SITE=HOST:PORT"),
        (("--server", "paris=[::1]:4222"), "is no IPv4 address; give one, or a name"),
        (("--server", "tokyo=127.0.0.1:1"), "site 'tokyo' is there twice; give each site one server"),
        (("--jitter", "5"), "--jitter: '5' is not a duration"),
        (("--faults", "crash.toml"), "crash.toml: fault 1, Crash: no link suffers that"),
        (("--faults", "none.toml"), "none.toml: cannot be read"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(
    words: tuple[str, ...],
    extra: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(Path(words[0]).parent)
    Path("crash.toml").write_text('faults = [{type = "Crash", site = "paris", at = 1}]')
    monkeypatch.setattr(sys, "argv", ["anabranch", "wan", *words, *extra])
    with pytest.raises(SystemExit, match="2"):
        main()
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_it_needs_a_server(start: Callable[..., Command], words: tuple[str, ...]) -> None:
    status, _, err = start(words[0]).end()
    assert status == 2
    assert err == "no link leads to a server; name one with --server SITE=HOST:PORT\n"


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("cut a b", Cut("a", "b", 0, math.inf)),
        ("  stall a b for 1 minute 30 s ", Stall("a", "b", 0, 90)),
        ("slow a b 2.5 for 500ms", Slow("a", "b", 0, 0.5, 2.5)),
        ("heal a b", Heal("a", "b")),
        ("reset a b", Reset("a", "b")),
    ],
)
def test_lines_say_what_they_mean(line: str, fault: Any) -> None:
    assert parse(line) == fault


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("burn a b", "there is no command 'burn'; the commands are cut, stall"),
        ("cut a", r"'cut a' is not complete, or too long; write it as: cut A B \[for DURATION\]"),
        ("cut a b c", "write it as: cut A B"),
        ("cut a b for", "'' is not a duration"),
        ("cut a b for ever", "'ever' is not a duration"),
        ("cut a b for 3 lightyears", "there is no unit 'lightyears'"),
        ("slow a b", r"write it as: slow A B FACTOR \[for DURATION\]"),
        ("slow a b very", "the factor 'very' is not a number"),
        ("heal a b for 3 s", "write it as: heal A B"),
        ("reset", "write it as: reset A B"),
    ],
)
def test_lines_that_mean_nothing_are_refused_with_a_remedy(line: str, message: str) -> None:
    with pytest.raises(FaultError, match=message):
        parse(line)
