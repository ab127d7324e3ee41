"""Who may not, is too slow, too large or no HTTP at all is refused and counted, and nobody else is
disturbed."""

import asyncio
from pathlib import Path

import pytest
from embedded import NOON, Sites, run
from http_client import get, post, sites

from anabranch.site.config import ConfigError, SiteConfig
from anabranch.site.http.memory import Memory, Standing
from anabranch.site.http.settings import Http, HttpError, Token

ROW = b'{"ts": %d, "host": "a", "load": 1}' % NOON

LOOK = b"GET /status HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


def refused(running: Sites, why: str) -> int:
    return running.journals["paris"].counts["http_refused", (("why", why),)]


async def raw(port: int, data: bytes, patience: float = 10) -> bytes:
    """What comes back until the other side closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        async with asyncio.timeout(patience):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def test_a_token_allows_what_it_says(tmp_path: Path) -> None:
    tokens = (
        Token.of("in", sources=("load",)),
        Token.of("out", outputs=("alerts",)),
        Token.of("look", status=True),
        Token.of("other", sources=("rtt",), outputs=("rtt",)),
    )

    async def work() -> None:
        async with sites(tmp_path, Http(tokens=tokens)) as running:
            port = running.agents["paris"].http_port
            for secret, posted, read, looked in (
                ("in", 200, 403, 403),
                ("out", 403, 200, 403),
                ("look", 403, 403, 200),
                ("other", 403, 403, 403),
                ("wrong", 401, 401, 401),
                ("", 401, 401, 401),
            ):
                bearer = f"Bearer {secret}"
                status, told = await post(port, ROW, producer="x", first=0, end=1, authorization=bearer)
                assert status == posted, (secret, told)
                assert secret in ("", "in", "out", "look", "other") or secret not in str(told)
                assert (await get(port, "/outputs/alerts", authorization=bearer))[0] == read
                assert (await get(port, "/status", authorization=bearer))[0] == looked
                assert (await get(port, "/metrics", authorization=bearer))[0] == looked
            assert (await post(port, ROW, authorization="Basic in"))[0] == 401
            assert (refused(running, "token"), refused(running, "scope")) == (9, 12)
            journal = (tmp_path / "paris" / "agent.jsonl").read_text()
            assert "Bearer" not in journal.replace("Authorization: Bearer SECRET", "")

    run(work())


def test_an_endpoint_that_others_reach_must_have_tokens(tmp_path: Path) -> None:
    with pytest.raises(HttpError, match="can be reached from elsewhere"):
        Http(host="0.0.0.0").check()
    with pytest.raises(HttpError, match="is no SHA-256"):
        Http(tokens=(Token("secret"),)).check()
    Http(host="0.0.0.0", tokens=(Token.of("x"),)).check()
    Http(host="::1").check()
    path = tmp_path / "site.json"
    path.write_text('{"site": "paris", "http": {"port": "x"}}')
    with pytest.raises(ConfigError):
        SiteConfig.load(path)


def test_slow_and_malformed_clients_are_refused_while_others_are_served(tmp_path: Path) -> None:
    head = b"POST /sources/load HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\n"

    async def work() -> None:
        http = Http(header_timeout=0.3, body_timeout=0.3, header_bytes=4096, body_bytes=10_000)
        async with sites(tmp_path, http) as running:
            port = running.agents["paris"].http_port
            answers = await asyncio.gather(
                raw(port, b""),
                raw(port, b"GET /status HT"),
                raw(port, head + b"content-length: 500\r\n\r\n" + ROW),
                raw(port, head.replace(b"load ", b"load?stream=1 ") + b"content-length: 500\r\n\r\n{"),
                raw(port, head + b"content-length: 1000000\r\n\r\n"),
                raw(port, head + b"transfer-encoding: chunked\r\n\r\n2710\r\n" + b" " * 11_000),
                raw(port, b"\x16\x03\x01\x02\x00\x01\x00 nonsense\r\n\r\n"),
                raw(port, b"GET /status HTTP/1.1\r\nhost: localhost\r\nx: " + b"x" * 8000),
                raw(port, b"GET /status HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n"),
                *(get(port, "/status") for _ in range(5)),
            )
            statuses = [int(a.split(b" ", 2)[1]) if a else 0 for a in answers[:9] if isinstance(a, bytes)]
            assert statuses == [408, 408, 408, 408, 413, 400, 400, 400, 421]
            assert all(answer[0] == 200 for answer in answers[9:])
            assert refused(running, "slow head") == 2
            assert refused(running, "slow body") == 2
            assert refused(running, "size") == 1
            assert refused(running, "malformed") == 3
            assert refused(running, "host") == 1

    run(work())


def test_too_many_connections_are_turned_away(tmp_path: Path) -> None:
    async def work() -> None:
        async with sites(tmp_path, Http(connections=4, header_timeout=30)) as running:
            port = running.agents["paris"].http_port
            idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
            assert b"503" in await raw(port, LOOK)
            assert refused(running, "connections") == 1
            for _, writer in idle:
                writer.transport.abort()
            while b"200 OK" not in await raw(port, LOOK):
                await asyncio.sleep(0.05)

    run(work())


def test_what_an_endpoint_remembers_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "clients.jsonl"
    memory = Memory(path)
    for number in range(5):
        memory.note(Standing("load", "a", number))
    memory.note(Standing("load", "b", 7, 3, 2, 1))
    memory.note(Standing("rtt", "b", 9))
    memory.forget("load", "a")
    with path.open("ab") as torn:
        torn.write(b'["load","b",')
    again = Memory(path)
    assert again.get("load", "b") == Standing("load", "b", 7, 3, 2, 1)
    assert again.of("load") == [Standing("load", "b", 7, 3, 2, 1)]
    assert again.get("load", "a") == Standing("load", "a")
