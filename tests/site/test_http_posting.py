"""Tuples that come by HTTP count once, whatever answers are lost and whichever endpoint the client turns to;
of what is wrong nothing is taken."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from embedded import NOON, SECOND, Sites, assert_ideal, busy_query, loads, run, take_all
from http_client import ARROW, NDJSON, PLAN, arrow, lines, post, sites
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.graph import Source
from anabranch.input_tables import InputError
from anabranch.site.cluster import Cluster
from anabranch.site.http.bodies import from_arrow
from anabranch.site.http.settings import Http
from anabranch.site.subscription import Receiver
from anabranch.streams.batch import ints
from anabranch.streams.lateness import pieces, promises


def receiving(running: Sites) -> asyncio.Task[list[Any]]:
    return asyncio.create_task(take_all(Receiver(running.deployment(), "alerts@paris")))


async def end(running: Sites, site: str, name: str, **headers: Any) -> None:
    status, _ = await post(running.agents[site].http_port, b"", producer=name, end=1, **headers)
    assert status == 200


def test_what_is_sent_again_counts_once_at_every_endpoint(tmp_path: Path) -> None:
    """A client sends pieces again, as if answers had been lost, and turns from endpoint to endpoint."""
    table, dice = loads(600, 6, 3), random.Random(5)

    async def work() -> None:
        async with sites(tmp_path) as running:
            received = receiving(running)
            turn = sent = 0
            at = "paris"
            while sent < table.num_rows:
                again = dice.randrange(0, min(sent, 40) + 1) if dice.random() < 0.5 else 0
                if dice.random() < 0.3:
                    at, turn = "tokyo" if at == "paris" else "paris", turn + 1
                first, until = sent - again, min(sent + dice.randrange(1, 60), table.num_rows)
                piece = table.slice(first, until - first)
                kind, body = (ARROW, arrow(piece)) if dice.random() < 0.5 else (NDJSON, lines(piece))
                port = running.agents[at].http_port
                status, told = await post(port, body, kind=kind, producer="load", first=first, turn=turn)
                assert (status, told) == (
                    200,
                    {"taken": until - sent, "repeated": again, "next": until},
                )
                sent = until
            await end(running, at, "load", turn=turn)
            assert_ideal(busy_query(), {"load": table}, {"alerts@paris": await received}, PLAN)

    run(work())


def test_two_requests_that_carry_the_same_tuples_at_once(tmp_path: Path) -> None:
    """The first answer is only slow, and the client has turned meanwhile."""
    table = loads(200, 2, 4)

    async def work() -> None:
        async with sites(tmp_path, Http(answer_timeout=5)) as running:
            received = receiving(running)
            body = lines(table)
            answers = await asyncio.gather(
                *(
                    post(running.agents[site].http_port, body, producer="load", first=0, turn=turn)
                    for turn, site in enumerate(("paris", "tokyo"))
                )
            )
            # That of the turn which does not count any more may be left without an answer.
            assert answers[1][0] == 200
            await end(running, "tokyo", "load", turn=1)
            assert_ideal(busy_query(), {"load": table}, {"alerts@paris": await received}, PLAN)

    run(work(), 90)


def test_a_client_goes_on_when_sites_die(tmp_path: Path) -> None:
    """It turns to the other endpoint whenever one does not answer as it should, and sends again."""
    table, dice = loads(400, 4, 6), random.Random(8)
    topology = ab.Topology.from_rtt([[0, 1], [1, 0]], ("paris", "tokyo"))

    async def work() -> None:
        http = Http(answer_timeout=8.0)
        async with Cluster(busy_query(), topology, PLAN, tmp_path, http=http) as cluster:
            received = asyncio.create_task(take_all(cluster.receiver("alerts@paris")))
            names = ["paris", "tokyo"]
            turn = sent = 0

            async def bring(body: bytes, **headers: Any) -> int:
                nonlocal turn
                while True:
                    port = cluster.http_ports[names[turn % 2]]
                    try:
                        status, told = await post(
                            port, body, producer="load", first=sent, turn=turn, **headers
                        )
                        if status == 200:
                            return int(told["next"])
                        assert status in (409, 503), told
                    except OSError:
                        pass
                    await asyncio.sleep(0.1)
                    turn += 1

            kills = {4: "paris", 9: "tokyo"}
            for step in range(14):
                if step in kills:
                    cluster.kill(kills[step], "agent")
                until = min(sent + dice.randrange(10, 25), table.num_rows)
                sent = await bring(lines(table.slice(sent, until - sent)))
                assert sent == until
            if sent < table.num_rows:
                sent = await bring(lines(table.slice(sent)))
            await bring(b"", end=1)
            assert_ideal(busy_query(), {"load": table}, {"alerts@paris": await received}, PLAN)

    run(work(), 120)


def test_tuples_without_a_name_are_closed_by_the_next_life(tmp_path: Path) -> None:
    """What an endpoint that was killed has left does not hold the stream back for ever."""
    topology = ab.Topology.from_rtt([[0, 1], [1, 0]], ("paris", "tokyo"))

    async def work() -> None:
        async with Cluster(busy_query(), topology, PLAN, tmp_path, http=Http()) as cluster:
            received = asyncio.create_task(take_all(cluster.receiver("alerts@paris")))
            now = int(time.time() * SECOND)
            row = b'{"ts": %d, "host": "a", "load": 0.9}\n'
            port = cluster.http_ports["paris"]
            assert (await post(port, row % (now + 60 * SECOND)))[0] == 200
            cluster.kill("paris", "agent")
            while True:
                try:
                    status, _ = await post(port, row % (now + 61 * SECOND))
                except OSError:
                    status = 0
                if status == 200:
                    break
                await asyncio.sleep(0.1)
            journal = tmp_path / "paris" / "agent.jsonl"
            while "earlier life closed" not in journal.read_text():
                await asyncio.sleep(0.1)
            cluster.terminate("paris")
            batches = await received
            assert sum(batch.num_rows for batch in batches) == 2

    run(work(), 60)


TUPLE = b'{"ts": 1, "host": "a", "load": 1}\n'
WRONG: list[tuple[bytes, dict[str, Any], int, str]] = [
    (b'{"ts": 1, "host": "a", "load": "x"}', {}, 400, "column 'load', row 1"),
    (TUPLE + b'{"ts"', {}, 400, "row 2"),
    (b'{"ts": null, "host": "a", "load": 1}', {}, 400, "give every tuple a time"),
    (b'{"ts": 1, "host": "a"}', {}, 400, "column 'load' is missing"),
    (b"[1]", {}, 400, "each line must be one JSON object"),
    (b"[" * 1900, {}, 400, "row 1"),
    (b"\xff\xfe", {}, 400, "row 1"),
    (b"{}", {"kind": "text/csv"}, 415, "send application/x-ndjson"),
    (b"{}", {"content-encoding": "gzip"}, 415, "send it as it is"),
    (b"nonsense", {"kind": ARROW}, 400, "not an Arrow stream"),
    (b"{}", {"path": "/sources/lood"}, 404, "the sources are load"),
    (b"{}", {"path": "/nowhere"}, 404, "there is POST /sources/NAME"),
    (b"{}", {"path": "/outputs/alerts"}, 405, "there is POST /sources/NAME"),
    (TUPLE, {"producer": "me"}, 400, "anabranch-first"),
    (TUPLE, {"first": 0}, 400, "anabranch-producer"),
    (TUPLE, {"producer": "me", "first": -1}, 400, "whole number"),
    (TUPLE, {"producer": "me", "first": "1e9"}, 400, "whole number"),
    (TUPLE, {"producer": "http@x", "first": 0}, 400, "is no name"),
    (TUPLE, {"producer": "me", "first": 7}, 409, "it is tuple 0"),
    (b" " * 3000, {}, 413, "at most 2000 bytes"),
    (TUPLE * 31, {}, 400, "more than 30 rows"),
    (TUPLE, {"path": "/sources/load?stream=yes"}, 400, "stream is 1"),
    (TUPLE, {"path": "/sources/load?stream=1", "kind": ARROW}, 415, "JSON lines"),
]


def test_of_what_is_wrong_nothing_is_taken(tmp_path: Path) -> None:
    async def work() -> None:
        async with sites(tmp_path, Http(body_bytes=2000, body_rows=30)) as running:
            port = running.agents["paris"].http_port
            for body, headers, status, says in WRONG:
                answered, told = await post(port, body, **headers)
                assert answered == status, (body, headers, told)
                assert says in told["error"], (body, headers, told)
            assert running.journals["paris"].counts["events", (("event", "Refused"),)] == len(WRONG)
            assert running.agents["paris"].status().events == {"Refused": len(WRONG)}
            received = receiving(running)
            good = b'{"ts": %d, "host": "a", "load": 1}' % NOON
            assert await post(port, good, producer="load", first=0) == (
                200,
                {"taken": 1, "repeated": 0, "next": 1},
            )
            await end(running, "paris", "load")
            assert sum(batch.num_rows for batch in await received) == 1
            status, told = await post(port, good, producer="load", first=1)
            assert status == 409
            assert "has ended" in told["error"]

    run(work())


def test_a_stream_takes_what_comes_before_a_mistake(tmp_path: Path) -> None:
    table = loads(3000, 6, 9)

    async def work() -> None:
        async with sites(tmp_path, Http(body_bytes=20_000)) as running:
            received = receiving(running)
            port = running.agents["paris"].http_port
            path = "/sources/load?stream=1"
            body = lines(table.slice(0, 2000)) + b"{nonsense\n" + lines(table.slice(2000))
            status, told = await post(port, body, path, producer="load", first=0)
            assert status == 400
            assert "JSON" in told["error"]
            assert 0 < told["taken"] == told["next"] <= 2000
            status, last = await post(port, lines(table), path, producer="load", first=0, end=1)
            assert (status, last["next"], last["repeated"]) == (200, 3000, told["next"])
            status, told = await post(port, b"x" * 30_000, path)
            assert (status, told["taken"]) == (413, 0)
            assert_ideal(busy_query(), {"load": table}, {"alerts@paris": await received}, PLAN)

    run(work())


def test_late_is_what_its_own_order_or_its_promise_says(tmp_path: Path) -> None:
    async def work() -> None:
        async with sites(tmp_path) as running:
            received = receiving(running)
            port = running.agents["paris"].http_port

            def rows(*seconds: int) -> bytes:
                return b"".join(
                    b'{"ts": %d, "host": "a", "load": 1}\n' % (NOON + s * SECOND) for s in seconds
                )

            await post(port, rows(10, 12, 11, 12), producer="load", first=0)
            await post(port, rows(20, 30), producer="load", first=4, promise=NOON + 20 * SECOND)
            await post(port, b"", producer="load", promise=NOON + 40 * SECOND)
            await post(port, rows(40, 41), producer="load", first=6, end=1)
            got = sorted((t - NOON) // SECOND for b in await received for t in ints(b.column(0)).tolist())
            assert got == [10, 12, 12, 30, 41]
            assert running.agents["paris"].status().events == {"Late": 3}

    run(work())


def test_what_a_clock_stamps_is_stamped_once_whichever_endpoint_it_comes_to(tmp_path: Path) -> None:
    q = ab.Query("clocked")
    load = q.source("load", "host string, load double", timestamps="entry")
    q.output("alerts", load.where("load > 0.5", name="busy"))

    async def work() -> None:
        async with Sites(q.graph, PLAN, ("paris", "tokyo"), tmp_path, http=Http()) as running:
            while not all(agent.http_port and agent.life for agent in running.agents.values()):
                await asyncio.sleep(0.01)
            received = receiving(running)
            paris, tokyo = (running.agents[name].http_port for name in ("paris", "tokyo"))
            body = b"".join(b'{"host": "h%d", "load": 1}\n' % i for i in range(30))
            assert (await post(paris, body, producer="me", first=0))[0] == 200
            for turn, port in enumerate((tokyo, paris, tokyo), 1):
                status, told = await post(port, body, producer="me", first=0, turn=turn)
                assert (status, told["repeated"], told["next"]) == (200, 30, 30)
            assert (await post(tokyo, body, producer="me", first=30, turn=3, end=1))[0] == 200
            hosts = Counter(host for batch in await received for host in batch.column("host").to_pylist())
            assert hosts == {f"h{i}": 2 for i in range(30)}

    run(work())


LOAD = busy_query().graph.sources[0]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_whatever_bytes_come_as_arrow_are_rows_or_refused(data: st.DataObject) -> None:
    """Also those of a good stream with a few of them changed."""
    body = bytearray(arrow(loads(20, 1)))
    for _ in range(data.draw(st.integers(0, 6))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.integers(0, len(body)))] if data.draw(st.booleans()) else body
    rows = None
    with contextlib.suppress(InputError):
        rows = from_arrow(bytes(body), LOAD, 100, "here")
    assert rows is None or rows.num_rows <= 100


def test_what_is_small_as_it_comes_and_large_as_it_is_used_is_refused() -> None:
    table = loads(50, 1)

    def refuse(body: bytes, source: Source = LOAD) -> str:
        with pytest.raises(InputError) as refused:
            from_arrow(body, source, 40, "here")
        return str(refused.value)

    assert "send it uncompressed" in refuse(arrow(table.slice(0, 9), compression="zstd"))
    assert "more than 40 rows" in refuse(arrow(table))
    hosts = table["host"].dictionary_encode()
    assert "send plain columns" in refuse(arrow(table.slice(0, 9).set_column(1, "host", hosts.slice(0, 9))))
    views = table["host"].cast(pa.string_view()).slice(0, 9)
    assert "send plain columns" in refuse(arrow(table.slice(0, 9).set_column(1, "host", views)))


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=40), st.integers(0, 20), st.integers(1, 9), st.data()
)
def test_which_tuples_are_late_does_not_depend_on_the_pieces(
    times: list[int], lateness: int, most: int, data: st.DataObject
) -> None:
    ts = ints(pa.array(times))
    true = ts <= promises(ts, lateness, -1)[:-1]
    judged = [bool(ts[i] <= promise) for a, b, promise in pieces(ts, lateness, -1, most) for i in range(a, b)]
    assert judged == true.tolist()
    assert all(0 < b - a <= most for a, b, _ in pieces(ts, lateness, -1, most))
