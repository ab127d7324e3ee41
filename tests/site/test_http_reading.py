"""Results that leave by HTTP: each once, also for a reader that comes back with its cursor."""

import asyncio
import http.client
import json
import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
from embedded import NOON, SECOND, Sites, busy_query, loads, run
from http_client import ARROW, get, lines, post, sites

import anabranch as ab
from anabranch.site.http.settings import Http

TABLE = loads(400, 4, 11)
PATH = "/outputs/alerts"


def wanted() -> list[tuple[str, float]]:
    ideal = ab.ideal(busy_query(), {"load": TABLE})["alerts"].sort_by("ts")
    return list(zip(ideal["host"].to_pylist(), ideal["load"].to_pylist(), strict=True))


async def fill(running: Sites, end: bool = True) -> None:
    port = running.agents["paris"].http_port
    for first in range(0, 400, 100):
        last = {"end": 1} if end and first == 300 else {}
        assert (await post(port, lines(TABLE.slice(first, 100)), producer="load", first=first, **last))[
            0
        ] == 200


@contextmanager
def opened(port: int, path: str, **headers: str) -> Iterator[http.client.HTTPResponse]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request("GET", path, None, headers)
        with connection.getresponse() as response:
            yield response


def test_a_reader_that_comes_back_with_its_cursor_misses_nothing_and_sees_nothing_twice(
    tmp_path: Path,
) -> None:
    """It breaks off again and again, and goes on at the one or the other site."""
    dice = random.Random(4)

    def read(ports: list[int]) -> list[tuple[str, float]]:
        got: list[tuple[str, float]] = []
        fresh: list[tuple[str, float]] = []
        cursor = None
        while True:
            headers = {"accept": "text/event-stream"} | ({} if cursor is None else {"last-event-id": cursor})
            # Where all has come at once, all of it stands before the first cursor.
            patience = dice.randrange(20, 900)
            with opened(dice.choice(ports), f"{PATH}?order=timestamp", **headers) as response:
                assert response.status == 200
                event = id = None
                while patience and (line := response.readline().decode().rstrip("\n")) is not None:
                    kind, _, value = line.partition(": ")
                    if kind == "event":
                        event = value
                    elif kind == "id":
                        id = value
                    elif kind == "data" and event is None:
                        row = json.loads(value)
                        fresh.append((row["host"], row["load"]))
                    elif not line:
                        if event == "end":
                            return got + fresh
                        if id is not None:
                            got, fresh, cursor, id = got + fresh, [], id, None
                        patience -= 1
            fresh = []

    async def work() -> None:
        async with sites(tmp_path) as running:
            ports = [agent.http_port for agent in running.agents.values()]
            reading = asyncio.create_task(asyncio.to_thread(read, ports))
            await fill(running)
            assert await reading == wanted()

    run(work())


def test_lines_and_arrow_say_the_same(tmp_path: Path) -> None:
    async def work() -> None:
        async with sites(tmp_path) as running:
            await fill(running)
            port = running.agents["tokyo"].http_port
            status, body = await get(port, f"{PATH}?order=timestamp")
            assert status == 200
            rows = [json.loads(line) for line in body.splitlines()]
            assert rows.pop() == {"_end": True}
            tuples = [row for row in rows if "host" in row]
            assert [(row["host"], row["load"]) for row in tuples] == wanted()
            status, body = await get(port, f"{PATH}?order=timestamp", accept=ARROW)
            with pa.ipc.open_stream(body) as reader:
                table = reader.read_all()
            assert list(zip(table["host"].to_pylist(), table["load"].to_pylist(), strict=True)) == wanted()
            assert len({row["_id"] for row in tuples}) == len(tuples) == table.num_rows
            after = NOON + 2 * SECOND
            status, body = await get(port, f"{PATH}?after={after}")
            late = [json.loads(line)["ts"] for line in body.splitlines() if b"host" in line]
            assert 0 < len(late) < len(tuples)
            assert min(late) > "2023-11-14T22:13:22"
            for path, headers, status in (
                ("/outputs/alarms", {}, 404),
                (f"{PATH}?after=soon", {}, 400),
                (f"{PATH}?order=size", {}, 400),
                (PATH, {"accept": "text/html"}, 406),
            ):
                assert (await get(port, path, **headers))[0] == status

    run(work())


def test_a_reader_may_begin_now(tmp_path: Path) -> None:
    async def work() -> None:
        async with sites(tmp_path) as running:
            await fill(running, end=False)
            port = running.agents["paris"].http_port
            # The filter's last promise must have come that far.
            while running.agents["paris"].status().log[-1].punctuation_age is None:
                await asyncio.sleep(0.05)

            def read() -> list[str]:
                with opened(port, f"{PATH}?after=now") as response:
                    begun.set()
                    return [json.loads(line).get("host") for line in response]

            begun = asyncio.Event()
            reading = asyncio.create_task(asyncio.to_thread(read))
            await begun.wait()
            row = {"ts": NOON + 60 * SECOND, "host": "new", "load": 1.0}
            await post(port, json.dumps(row), producer="load", first=400, end=1)
            hosts = [host for host in await reading if host is not None]
            assert hosts[-1] == "new"
            assert len(hosts) < len(wanted())

    run(work())


def test_a_reader_that_takes_nothing_is_disconnected_and_disturbs_nobody(tmp_path: Path) -> None:
    wide = pa.table(
        {
            "ts": pa.array([NOON + i for i in range(3000)]).cast(pa.timestamp("us", "UTC")),
            "host": ["h" * 4000] * 3000,
            "load": [1.0] * 3000,
        }
    )

    async def work() -> None:
        http = Http(reader_timeout=0.5, body_bytes=64 << 20)
        async with sites(tmp_path, http) as running:
            port = running.agents["paris"].http_port
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
            writer.write(f"GET {PATH} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            sent = post(port, lines(wide), producer="load", first=0, end=1)
            assert (await sent)[0] == 200
            while not running.journals["paris"].total("http_slow_readers"):
                await asyncio.sleep(0.05)
            assert running.agents["paris"].status().events["SlowReader"] == 1
            writer.transport.abort()
            status, body = await get(port, f"{PATH}?order=timestamp")
            assert (status, body.count(b'hhhh"')) == (200, 3000)

    run(work())
