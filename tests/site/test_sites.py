"""Agents in this process over real servers: producers, applications, what is told, and lives that end."""

import asyncio
import shutil
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from embedded import NOON, SECOND, Relay, Sites, assert_ideal, busy_query, loads, run, take_all

import anabranch as ab
from anabranch.input_tables import InputError
from anabranch.log import names
from anabranch.log.connection import Access, connect
from anabranch.plan import PlanError
from anabranch.protocols.settings import Settings
from anabranch.site import subscription
from anabranch.site.config import ConfigError, Deployment
from anabranch.site.producer import Producer
from anabranch.site.replay import Pace, Replay
from anabranch.site.status import SiteStatus
from anabranch.site.subscription import Receiver, subscribe
from anabranch.streams.batch import Batch

QUERY = busy_query()
GRAPH = QUERY.graph
APP = ab.Subscription("alerts@a", "alerts", "a")
NAME = "alerts@a"
ALONE = ab.full_mesh(GRAPH, {"load": ("a",)}, {"busy": ("a",)}, (APP,))
PAIR = ab.full_mesh(GRAPH, {"load": ("a", "b")}, {"busy": ("a", "b")}, (APP,))


def of_old(deployment: Deployment) -> Producer:
    """Whose tuples are older than what this machine's clock would promise."""
    return Producer(deployment, "load", arrived=lambda: NOON - 1)


async def send(producer: Producer, table: pa.Table, rows: int = 100) -> None:
    for batch in table.to_batches(max_chunksize=rows):
        await producer.send(batch, arrived=batch["ts"][0].value)


def test_a_slow_application_holds_its_branches_up_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 200_000
    monkeypatch.setattr(subscription, "BUFFER_BYTES", most)
    inputs = {"load": loads(60_000, 10)}

    async def work() -> None:
        settings = Settings(branch_window=8)
        async with Sites(GRAPH, ALONE, ("a",), tmp_path, settings) as sites:
            receiver = Receiver(sites.deployment(), NAME)
            received: list[Batch] = []
            async with of_old(sites.deployment()) as producer, receiver:
                await send(producer, inputs["load"], 500)
                await producer.flush()
                await asyncio.sleep(0.3)
                largest = receiver.waiting
                sending = asyncio.create_task(producer.close())
                async for rows in receiver:
                    received.append(rows)
                    largest = max(largest, receiver.waiting)
                    await asyncio.sleep(0.001)
                await sending
            assert_ideal(QUERY, inputs, {NAME: received}, ALONE)
            asked = settings.branch_window * max(rows.nbytes for rows in received)
            assert largest <= most + asked, "what it has not asked for does not come"

    run(work())


def test_a_producer_turns_to_another_entry_point_when_its_own_does_not_answer(tmp_path: Path) -> None:
    inputs = {"load": loads(400, 3)}

    async def work() -> None:
        settings = Settings(producer_timeout=SECOND // 2, mirror_patience=SECOND // 4)
        sites = Sites(GRAPH, PAIR, ("a", "b"), tmp_path, settings)
        async with sites, Relay(sites.servers["a"].settings.port).running() as relay:
            taking = asyncio.create_task(take_all(Receiver(sites.deployment(), NAME)))
            async with of_old(sites.deployment(a=relay.url)) as producer:
                await send(producer, inputs["load"].slice(0, 200))
                await producer.flush()
                relay.open.clear()
                await send(producer, inputs["load"].slice(200))
                await producer.flush()
            relay.open.set()
            assert_ideal(QUERY, inputs, {NAME: await taking}, PAIR)

    run(work())


def test_a_log_that_is_lost_while_the_agent_runs_begins_a_new_life(tmp_path: Path) -> None:
    inputs = {"load": loads(600, 6)}

    async def work() -> None:
        async with Sites(GRAPH, PAIR, ("a", "b"), tmp_path) as sites:
            taking = asyncio.create_task(take_all(Receiver(sites.deployment(), NAME)))
            async with of_old(sites.deployment()) as producer:
                await send(producer, inputs["load"].slice(0, 300))
                await producer.flush()
                server = sites.servers["b"]
                server.kill()
                shutil.rmtree(server.settings.directory)
                server.start()
                for first in range(300, 600, 10):
                    await send(producer, inputs["load"].slice(first, 10))
                    await asyncio.sleep(0.02)
                while sites.agents["b"].lives == 1:
                    await asyncio.sleep(0.01)
            assert_ideal(QUERY, inputs, {NAME: await taking}, PAIR)
            assert "log server" not in str(sites.agents["b"].status().events)

    run(work())


def test_tuples_that_the_entry_point_stamps_arrive_once(tmp_path: Path) -> None:
    q = ab.Query("busy")
    source = q.source("load", "host string, load double", timestamps="entry")
    q.output("alerts", source.where("load > 0.5", name="busy"))
    table = loads(200, 1).drop_columns("ts")

    async def work() -> None:
        async with Sites(q.graph, PAIR, ("a", "b"), tmp_path) as sites:
            taking = asyncio.create_task(take_all(Receiver(sites.deployment(), NAME)))
            async with Producer(sites.deployment(), "load") as producer:
                for batch in table.to_batches(max_chunksize=20):
                    await producer.send(batch)
            got = pa.Table.from_batches(await taking)
        wanted = [v for v in table["load"].to_pylist() if v > 0.5]
        assert sorted(got["load"].to_pylist()) == sorted(wanted)

    run(work())


def test_a_site_tells_how_it_stands(tmp_path: Path) -> None:
    inputs = {"load": loads(400, 4)}

    async def work() -> None:
        async with Sites(GRAPH, PAIR, ("a", "b"), tmp_path) as sites:
            taking = asyncio.create_task(take_all(Receiver(sites.deployment(), NAME)))
            async with of_old(sites.deployment()) as producer:
                await send(producer, inputs["load"])
            await taking
            connection = await connect(Access(sites.urls["a"]), "who asks", lambda: None)
            reply = await connection.client.request(names.status("busy", "a"), b"", timeout=5)
            await connection.close()
            told = msgspec.json.decode(reply.data, type=SiteStatus)
            assert (told.site, told.epoch, told.fragments, told.entries) == ("a", 1, (("busy",),), ("load",))
            assert {(b.source, b.connected) for b in told.branches} == {("a", True), ("b", True)}
            assert {b.received for b in told.branches} == {400}
            assert round(sum(b.first for b in told.branches), 3) == 1
            assert {s.stream for s in told.log} == {"in/load", "out/load", "out/busy"}
            page = await http(told.metrics_port, "/metrics")
            assert 'anabranch_log_rows_total{stream="in/load"} 400' in page
            assert 'anabranch_branch_connected{stream="load",branch="b"} 1' in page
            assert "404" in await http(told.metrics_port, "/elsewhere")

    run(work())


async def http(port: int, path: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.decode()


def test_events_are_written_down_with_all_they_say(tmp_path: Path) -> None:
    """Tuples that come too late."""

    async def work() -> None:
        sites = Sites(GRAPH, ALONE, ("a",), tmp_path)
        async with sites, of_old(sites.deployment()) as producer:
            await producer.send(loads(5, 1), arrived=NOON)
            await producer.send(loads(5, 1), arrived=NOON + 10 * SECOND)
            await producer.flush()
        lines = [
            msgspec.json.decode(line) for line in (tmp_path / "a" / "agent.jsonl").read_text().splitlines()
        ]
        (late,) = [line for line in lines if line["what"] == "Late"]
        assert (late["source"], late["tuples"], late["site"], late["epoch"]) == ("load", 5, "a", 1)

    run(work())


def test_a_replay_makes_nothing_late_however_slow_the_machine_is(tmp_path: Path) -> None:
    inputs = {"load": loads(500, 1)}

    async def work() -> None:
        async with Sites(GRAPH, ALONE, ("a",), tmp_path) as sites:
            taking = asyncio.create_task(take_all(Receiver(sites.deployment(), NAME)))
            replay = Replay(GRAPH.sources[0], inputs["load"], Pace(NOON, speed=100))
            async with Producer(sites.deployment(), "load", arrived=replay.arrived) as producer:
                await replay.feed(producer)
            assert_ideal(QUERY, inputs, {NAME: await taking}, ALONE)
            assert "Late" not in sites.agents["a"].status().events

    run(work())


def test_mistakes_of_clients_are_told(tmp_path: Path) -> None:
    async def work() -> None:
        async with Sites(GRAPH, ALONE, ("a",), tmp_path) as sites:
            deployment = sites.deployment()
            with pytest.raises(ConfigError, match="no such source"):
                Producer(deployment, "nonsense")
            with pytest.raises(PlanError, match="nobody subscribes to 'x'"):
                await anext(subscribe(deployment, "x"))
            with pytest.raises(PlanError, match="no such subscription"):
                Receiver(deployment, "x")
            producer = Producer(deployment, "load")
            producer.start()
            with pytest.raises(InputError, match="column 'load'"):
                await producer.send(pa.table({"ts": [1], "host": ["a"], "load": ["much"]}))
            with pytest.raises(InputError, match="a tuple takes 4000020 bytes"):
                await producer.send(pa.table({"ts": [1], "host": ["a" * 4_000_000], "load": [0.5]}))
            with pytest.raises(InputError, match="'ts' is missing"):
                await producer.send(pa.table({"host": ["a"], "load": [0.5]}))
            await producer.abandon()

    run(work())
