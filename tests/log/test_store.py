"""A site's own log on a real server: order, repetition, crashes of the server, and what ends a life."""

import asyncio
import random
import shutil
from collections.abc import Coroutine
from typing import Any

import pyarrow as pa

from anabranch.log.connection import Access
from anabranch.log.server import Server
from anabranch.log.store import Log, LogLost, SiteLog
from anabranch.protocols.effects import Append, Drop, ReadLog, Trim
from anabranch.protocols.records import Writer
from anabranch.streams.batch import Batch, assemble, ints, with_ids

SCHEMA = with_ids(pa.schema({"v": pa.int64()}))


def rows(first: int, count: int) -> Batch:
    numbers = ints(pa.array(range(first, first + count), pa.int64()))
    return assemble(numbers, numbers, numbers, [pa.array(numbers)], SCHEMA)


class Site:
    """One life of an agent, as far as its log is concerned."""

    def __init__(self, server: Server, generation: int = 1) -> None:
        self.appended: list[Append] = []
        self.failure: BaseException | None = None
        self.writer = Writer("out/s", generation)
        self.answers: asyncio.Queue[Log] = asyncio.Queue()
        self.log = SiteLog(
            Access(server.url),
            "q",
            "paris",
            lambda stream: SCHEMA,
            self.appended.append,
            lambda question, log: self.answers.put_nowait(log),
            self.fail,
        )

    def fail(self, error: BaseException) -> None:
        self.failure = error

    async def recover(self) -> None:
        self.writer.recover(*await self.read())

    async def read(self, stream: str = "out/s") -> Log:
        self.log.do(ReadLog(stream))
        return await asyncio.wait_for(self.answers.get(), 20)

    def append(self, first: int, count: int = 1) -> Append:
        append = self.writer.append(rows(first, count))
        self.log.do(append)
        return append

    async def settled(self) -> None:
        async with asyncio.timeout(30):
            while self.log.waiting and self.failure is None:
                await asyncio.sleep(0.01)


def values(log: Log) -> list[int]:
    return [v for record in log[1] if record.rows is not None for v in record.rows["v"].to_pylist()]


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_what_was_appended_is_read_back_in_order(server: Server) -> None:
    async def work() -> None:
        site = Site(server)
        assert await site.read() == (0, ())
        appends = [site.append(10 * i, 3) for i in range(500)]
        first, records = await site.read()
        assert first == 0
        assert records == tuple(append.record for append in appends)
        assert site.appended == appends
        await site.log.close()

    run(work())


def test_a_new_life_goes_on_where_the_last_one_ended(server: Server) -> None:
    async def work() -> None:
        for life in (1, 2):
            site = Site(server, life)
            await site.recover()
            site.append(life)
            await site.settled()
            await site.log.close()
        site = Site(server)
        assert values(await site.read()) == [1, 2]
        await site.log.close()

    run(work())


def test_what_is_trimmed_is_gone_and_the_last_record_stays(server: Server) -> None:
    async def work() -> None:
        site = Site(server)
        for i in range(10):
            site.append(i)
        site.log.do(Trim("out/s", 3))
        site.log.do(Trim("out/s", 7))
        first, records = await site.read()
        assert (first, values((first, records))) == (7, [7, 8, 9])
        site.log.do(Trim("out/s", 500))
        site.append(10)
        assert (await site.read())[0] == 9
        await site.log.close()

    run(work())


def test_a_stream_that_was_dropped_begins_anew(server: Server) -> None:
    async def work() -> None:
        site = Site(server)
        site.append(1)
        site.log.do(Drop("out/s"))
        site.writer = Writer("out/s", 2)
        site.append(2)
        assert values(await site.read()) == [2]
        await site.log.close()

    run(work())


def test_a_server_that_is_killed_while_writing_costs_nothing_and_repeats_nothing(server: Server) -> None:
    async def work() -> None:
        site = Site(server)
        offered = 0
        for _ in range(4):
            for _ in range(30):
                for _ in range(random.randrange(5)):
                    site.append(offered)
                    offered += 1
                await asyncio.sleep(0.002)
            server.kill()
            server.start()
        await site.settled()
        assert site.failure is None
        assert [append.position for append in site.appended] == list(range(offered))
        assert values(await site.read()) == list(range(offered))
        await site.log.close()

    run(work())


def test_a_log_that_comes_back_without_its_disk_ends_this_life(server: Server) -> None:
    async def work() -> None:
        site = Site(server)
        site.append(1)
        await site.settled()
        server.kill()
        shutil.rmtree(server.settings.directory)
        server.start()
        site.append(2)
        await site.settled()
        assert isinstance(site.failure, LogLost)
        await site.log.close()

    run(work())


def test_a_second_writer_is_noticed(server: Server) -> None:
    async def work() -> None:
        one, other = Site(server, 1), Site(server, 2)
        await one.recover()
        await other.recover()
        one.append(1)
        await one.settled()
        other.append(2)
        await other.settled()
        assert isinstance(other.failure, LogLost)
        assert values(await one.read()) == [1]
        await one.log.close()
        await other.log.close()

    run(work())
