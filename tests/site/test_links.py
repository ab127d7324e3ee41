"""One branch over a real server: where it starts, what it brings, and what it notices."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from embedded import Relay, free_port, run

from anabranch.log import names
from anabranch.log.connection import Access
from anabranch.log.server import Server, ServerSettings
from anabranch.log.store import SiteLog
from anabranch.protocols.effects import Drop, OpenBranch, Trim
from anabranch.protocols.records import Record, Writer
from anabranch.sim.disk import Stream
from anabranch.site.journal import Journal
from anabranch.site.links import Links
from anabranch.site.resume import start
from anabranch.streams.batch import Batch, assemble, ints, with_ids
from anabranch.streams.punctuation import BEGINNING

SCHEMA = with_ids(pa.schema({"v": pa.int64()}))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(ServerSettings("paris", tmp_path / "log", port=free_port()), bound=True)
    running.start()
    yield running
    running.stop()


def batch(first: int, count: int = 1, size: int = 1) -> Batch:
    numbers = ints(pa.array(range(first, first + count), pa.int64()))
    return assemble(numbers, numbers, numbers, [pa.array(numbers)], SCHEMA)


class Upstream:
    """The site that serves stream s, and what its log should hold."""

    def __init__(self, server: Server, generation: int = 1) -> None:
        self.writer = Writer("out/s", generation)
        self.disk = Stream()
        self.log = SiteLog(
            Access(server.url),
            "q",
            "paris",
            lambda stream: SCHEMA,
            lambda a: None,
            lambda q, a: None,
            self.fail,
        )

    def fail(self, error: BaseException) -> None:
        raise error

    def append(self, ts: int | None, punctuation: int = BEGINNING, count: int = 1) -> None:
        self.writer.punctuation = max(self.writer.punctuation, punctuation)
        append = self.writer.append(None if ts is None else batch(ts, count))
        self.disk.append(append.record)
        self.log.do(append)

    def trim(self, keep: int) -> None:
        self.disk.trim(keep)
        self.log.do(Trim("out/s", keep))

    async def settled(self) -> None:
        while self.log.waiting:
            await asyncio.sleep(0.005)


class Downstream:
    """Who reads it; it asks again when it is told of a reset, as the protocol does."""

    def __init__(self, url: str, window: int = 64, again: bool = True) -> None:
        self.opened: list[tuple[int, bool]] = []
        self.positions: list[int] = []
        self.records: list[Record] = []
        self.resets = 0
        self.busy = False
        self.journal = Journal(Path("/dev/null"))
        self.links = Links(
            "tokyo", "q", lambda site: Access(url), lambda s: SCHEMA, window, self, self.journal
        )
        self._again = again

    def open(self, position: int | None = None, generation: int = 0, complete_from: int = BEGINNING) -> None:
        self.links.open(OpenBranch("s", "paris", position, generation, complete_from))

    def on_opened(self, stream: str, source: str, position: int, resumed: bool) -> None:
        self.opened.append((position, resumed))

    def on_record(self, stream: str, source: str, position: int, record: Record) -> None:
        self.positions.append(position)
        self.records.append(record)

    def on_reset(self, stream: str, source: str) -> None:
        self.resets += 1
        if self._again:
            last = self.records[-1] if self.records else None
            self.open(
                self.positions[-1] + 1 if last else None,
                last.generation if last else 0,
                last.punctuation if last else BEGINNING,
            )

    def is_busy(self, stream: str) -> bool:
        return self.busy

    async def has(self, count: int) -> None:
        while len(self.positions) < count:
            await asyncio.sleep(0.005)

    async def close(self) -> None:
        await self.links.close()
        self.journal.close()


def test_a_branch_starts_where_the_simulated_log_would_start_it(server: Server) -> None:
    async def work() -> None:
        up = Upstream(server)
        for ts in (10, None, 20, 20, 50, None, 40, 60, None):
            up.append(ts)
        up.writer.generation = 2
        for ts in (70, 80, None):
            up.append(ts)
        for keep in (0, 3):
            up.trim(keep)
            await up.settled()
            asked = [(p, g) for p in (None, 0, 1, 3, 4, 8, 9, 10, 12, 13) for g in (0, 1, 2)]
            for position, generation in asked:
                for complete_from in (BEGINNING, 10, 20, 45, 60, 79, 80, 99):
                    branch = OpenBranch("s", "paris", position, generation, complete_from)
                    await starts_as_simulated(server, up, branch)
        await up.log.close()

    run(work())


async def starts_as_simulated(server: Server, up: Upstream, branch: OpenBranch) -> None:
    connection = await up.log.connection()
    name = names.stream("q", "out/s")
    found = await start(connection.client, name, SCHEMA, "out/s at paris", branch)
    assert (found.position, found.resumed) == up.disk.resume(branch), branch


def test_a_branch_brings_all_there_is_and_all_that_comes_in_order(server: Server) -> None:
    async def work() -> None:
        up, down = Upstream(server), Downstream(server.url)
        down.open()
        for i in range(100):
            up.append(i)
        await down.has(100)
        for i in range(100, 500):
            up.append(i)
        await down.has(500)
        assert down.positions == list(range(500))
        assert tuple(down.records) == tuple(up.disk.records)
        assert down.opened[0] == (0, False)
        await down.close()
        await up.log.close()

    run(work())


def test_records_larger_than_a_request_come_too(server: Server) -> None:
    async def work() -> None:
        up, down = Upstream(server), Downstream(server.url)
        for i in range(3):
            up.append(i)
            up.append(i, count=120_000)
        down.open()
        await down.has(6)
        assert [r.rows.num_rows for r in down.records if r.rows] == [1, 120_000] * 3
        await down.close()
        await up.log.close()

    run(work())


def test_a_connection_that_breaks_is_told_and_the_branch_resumes(server: Server) -> None:
    async def work() -> None:
        up = Upstream(server)
        async with Relay(server.settings.port).running() as relay:
            down = Downstream(relay.url)
            down.open()
            for i in range(60):
                up.append(i)
                if i % 20 == 10:
                    await down.has(i - 5)
                    relay.cut()
            await down.has(60)
            assert down.positions == list(range(60))
            assert down.resets == 3
            assert all(resumed for _, resumed in down.opened[-3:])
            await down.close()
        await up.log.close()

    run(work())


def test_what_was_trimmed_while_the_consumer_was_busy_is_noticed(server: Server) -> None:
    """The server skips it without a word."""

    async def work() -> None:
        up, down = Upstream(server), Downstream(server.url, window=4)
        up.append(0)
        down.open()
        await down.has(1)
        down.busy = True
        for i in range(1, 40):
            up.append(i, punctuation=i - 1)
        await up.settled()
        held = len(down.positions)
        assert held < 40
        up.trim(30)
        await up.settled()
        down.busy = False
        down.links.go_on("s")
        await asyncio.sleep(0)
        while down.positions[-1] != 39:
            await asyncio.sleep(0.005)
        assert down.resets == 1
        assert down.opened[-1] == (30, False)
        jumps = [b for a, b in zip(down.positions, down.positions[1:], strict=False) if b != a + 1]
        assert jumps == [30]
        await down.close()
        await up.log.close()

    run(work())


def test_a_busy_consumer_is_sent_no_more_than_it_asked_for(server: Server) -> None:
    async def work() -> None:
        up, down = Upstream(server), Downstream(server.url, window=16)
        down.busy = True
        for i in range(200):
            up.append(i)
        down.open()
        while not down.opened:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.2)
        assert down.positions == []
        down.busy = False
        down.links.go_on("s")
        await down.has(200)
        await down.close()
        await up.log.close()

    run(work())


def test_a_log_that_came_back_with_another_life_in_it_is_read_anew(server: Server) -> None:
    """Its end was lost, and other records are where the reader had been: the generation gives it away."""

    async def work() -> None:
        up, down = Upstream(server), Downstream(server.url)
        for i in range(10):
            up.append(i, punctuation=i - 1)
        down.open()
        await down.has(10)
        await up.log.close()
        server.kill()
        shutil.rmtree(server.settings.directory)
        server.start()
        other = Upstream(server, generation=7)
        for i in range(20):
            other.append(i, punctuation=i - 1)
        while not (down.records[-1].generation == 7 and down.positions[-1] == 19):
            await asyncio.sleep(0.005)
        start = down.positions.index(down.opened[-1][0], 10)
        assert not down.opened[-1][1]
        assert down.positions[start:] == list(range(down.positions[start], 20))
        await down.close()
        await other.log.close()

    run(work())


def test_a_stream_that_is_dropped_and_begun_again_is_opened_again(server: Server) -> None:
    async def work() -> None:
        up, down = Upstream(server), Downstream(server.url)
        up.append(1)
        down.open()
        await down.has(1)
        up.log.do(Drop("out/s"))
        up.writer = Writer("out/s", 9)
        await up.settled()
        while not down.resets:
            await asyncio.sleep(0.005)
        up.append(5)
        await down.has(2)
        assert down.records[-1].generation == 9
        assert down.opened[-1] == (0, False)
        await down.close()
        await up.log.close()

    run(work())


def test_a_stalled_branch_does_not_hold_up_another(server: Server) -> None:
    async def work() -> None:
        up = Upstream(server)
        async with Relay(server.settings.port).running() as relay:
            stalled, other = Downstream(relay.url), Downstream(server.url)
            for each in (stalled, other):
                each.open()
            up.append(0)
            await stalled.has(1)
            relay.open.clear()
            for i in range(1, 50):
                up.append(i)
            await other.has(50)
            assert len(stalled.positions) == 1
            relay.open.set()
            await stalled.has(50)
            assert stalled.positions == list(range(50))
            await stalled.close()
            await other.close()
        await up.log.close()

    run(work())


def test_a_damaged_record_is_refused_and_counted(server: Server) -> None:
    async def work() -> None:
        up, down = Upstream(server), Downstream(server.url, again=False)
        up.append(0)
        down.open()
        await down.has(1)
        connection = await up.log.connection()
        await connection.client.request(names.subject("q", "out/s"), b"nonsense", timeout=2)
        while not down.journal.total("malformed"):
            await asyncio.sleep(0.005)
        assert down.positions == [0]
        await down.close()
        await up.log.close()

    run(work())
