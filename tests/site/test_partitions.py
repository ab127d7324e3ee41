"""What is taken in batches, cut anyhow and taken again after crashes, comes once and is late by its own order
alone: the sites that read it decide alike."""

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from embedded import NOON, SECOND, Sites, run, take_all
from test_attached import identified as identified_in_turn
from test_attached import received_rows, shared_plan, shared_query

import anabranch as ab
from anabranch.plan import Plan
from anabranch.site.config import ConfigError
from anabranch.site.intake import Intake
from anabranch.site.sources.numbered import Numbered
from anabranch.site.sources.parallel import Missing, Parallel
from anabranch.site.sources.successive import Successive
from anabranch.site.subscription import Receiver
from anabranch.streams.batch import Batch, ints
from anabranch.streams.hashing import source_ids
from anabranch.streams.lateness import promises

LATENESS = 200_000
NAMES = ("0", "1", "2")


def partitions(seed: int, rows: int) -> dict[str, Batch]:
    """Rows that are out of order by more than the lateness now and then, the last of each far ahead."""
    rng = np.random.default_rng(seed)
    made = {}
    for name in NAMES:
        ts = NOON + np.arange(rows) * 20_000 + rng.integers(-SECOND // 2, SECOND // 10, rows)
        ts[-1] = NOON + 3600 * SECOND
        made[name] = pa.record_batch(
            {
                "ts": pa.array(ts).cast(pa.timestamp("us", "UTC")),
                "host": [f"h{name}"] * rows,
                "load": rng.random(rows),
            }
        )
    return made


def identified(parts: dict[str, Batch], kind: str = "partition") -> Counter[tuple[Any, ...]]:
    """What the rule says: busy rows in time by the order of their own partition, with the ids of partition
    and number."""
    found: Counter[tuple[Any, ...]] = Counter()
    for name, rows in parts.items():
        ts = ints(rows.column(0))
        allowed = promises(ts, LATENESS, -(2**62))
        hi, lo = source_ids("load", f"{kind} {name}", 0, len(ts))
        columns = (column.to_pylist() for column in rows.columns[1:])
        every = zip(ts.tolist(), hi.tolist(), lo.tolist(), *columns, strict=True)
        found.update(
            row for row, low in zip(every, allowed.tolist(), strict=False) if row[0] > low and row[4] > 0.5
        )
    return found


class Crash(Exception):
    pass


async def read(running: Sites, site: str, parts: dict[str, Batch], directory: Path, seed: int) -> None:
    """As Spark does: batches of any cut, one that was not answered again after a crash, and once everything
    from the beginning."""
    dice, memory = random.Random(seed), directory / f"{site}.json"
    done, lives = dict.fromkeys(parts, 0), 0
    planned: dict[str, int] | None = None
    while any(done[name] < len(rows) for name, rows in parts.items()):
        intake = Intake(running.deployment(), f"test@{site}", running.journals[site])
        parallel = Parallel(running.graph.sources[0], site, NAMES, intake, memory)
        try:
            assert await parallel.start()
            if lives == 2:
                done = dict.fromkeys(parts, 0)
                planned = None
            while any(done[name] < len(rows) for name, rows in parts.items()):
                if planned is None:
                    planned = {n: min(len(parts[n]), done[n] + dice.randrange(60)) for n in parts}
                batch = {
                    n: (done[n], parts[n].slice(done[n], planned[n] - done[n]))
                    for n in parts
                    if planned[n] > done[n]
                }
                taking = asyncio.create_task(parallel.take(batch))
                if dice.random() < 0.3 and lives < 6:
                    # Wherever it is by then; Spark does not hear that it is safe.
                    for _ in range(dice.randrange(40)):
                        await asyncio.sleep(0)
                    taking.cancel()
                    await asyncio.gather(taking, return_exceptions=True)
                    raise Crash
                await taking
                done, planned = planned, None
        except Crash:
            lives += 1
        finally:
            await intake.close()
    assert lives > 2


def test_partitions_side_by_side(tmp_path: Path) -> None:
    query, parts = shared_query("200 ms"), partitions(1, 400)

    async def work() -> None:
        async with Sites(query.graph, shared_plan(query), ("paris", "tokyo"), tmp_path) as running:
            names = ("alerts@paris", "of paris", "of tokyo")
            wanted = identified(parts)
            receivers = [Receiver(running.deployment(), name) for name in names]
            taking = [asyncio.create_task(take(each, wanted.total())) for each in receivers]
            await asyncio.gather(
                *(read(running, site, parts, tmp_path, n) for n, site in enumerate(running.names))
            )
            assert 100 < wanted.total() < 550
            assert [received_rows(await task) for task in taking] == [wanted] * 3

    run(work())


async def take(receiver: Receiver, count: int) -> list[Batch]:
    """Until so many have come and the stream has promised all of them."""
    got: list[Batch] = []
    async with receiver:
        while sum(rows.num_rows for rows in got) < count:
            rows = await receiver.take()
            assert rows is not None
            got.append(rows[0])
        while receiver.punctuation < NOON + 3599 * SECOND:
            await asyncio.sleep(0.01)
        while not receiver.idle:
            rows = await receiver.take()
            assert rows is not None
            got.append(rows[0])
    return got


def test_what_is_missing_or_unknown_is_told(tmp_path: Path) -> None:
    query, parts = shared_query(), partitions(2, 10)

    async def work() -> None:
        async with Sites(query.graph, shared_plan(query), ("paris", "tokyo"), tmp_path) as running:
            intake = Intake(running.deployment(), "test@paris", running.journals["paris"])
            parallel = Parallel(running.graph.sources[0], "paris", NAMES, intake, tmp_path / "m.json")
            assert await parallel.start()
            with pytest.raises(Missing, match="partition '1' goes on with number 3, and 0 has not come"):
                await parallel.take({"1": (3, parts["1"])})
            with pytest.raises(ConfigError, match="a partition '7', and partitions names only 0, 1, 2"):
                await parallel.take({"7": (0, parts["1"])})
            await intake.close()

    run(work())


def test_a_log_that_was_lost_is_noticed(tmp_path: Path) -> None:
    """And then what is brought from the beginning is there again."""
    query, parts = shared_query("200 ms"), partitions(3, 50)
    memory = tmp_path / "m.json"

    async def once(directory: Path) -> bool:
        async with Sites(query.graph, shared_plan(query), ("paris", "tokyo"), directory) as running:
            intake = Intake(running.deployment(), "test@paris", running.journals["paris"])
            parallel = Parallel(running.graph.sources[0], "paris", NAMES, intake, memory)
            held = await parallel.start()
            await parallel.take({name: (0, rows) for name, rows in parts.items()})
            wanted = identified(parts)
            got = await take(Receiver(running.deployment(), "of paris"), wanted.total())
            assert received_rows(got) == wanted
            await intake.close()
            return held

    async def work() -> None:
        assert await once(tmp_path / "first")
        assert not await once(tmp_path / "second")

    run(work())


def test_partitions_that_follow_each_other(tmp_path: Path) -> None:
    """A crash within one, and what was taken before is not taken again."""
    query, parts = shared_query("200 ms"), {}
    for number, (name, rows) in enumerate(partitions(4, 301).items()):
        ts = ints(rows.column(0))[:300] + 6 * SECOND * number
        shifted = pa.array(ts).cast(pa.timestamp("us", "UTC"))
        parts[name] = rows.slice(0, 300).set_column(0, "ts", shifted)

    async def work() -> None:
        async with Sites(query.graph, shared_plan(query), ("paris", "tokyo"), tmp_path) as running:
            taking = asyncio.create_task(take_all(Receiver(running.deployment(), "of paris")))
            for life in range(3):
                intake = Intake(running.deployment(), "test@paris", running.journals["paris"])
                source = running.graph.sources[0]
                each = Successive(source, "paris", "file", "files load", intake, tmp_path / "m.json")
                assert await each.start()
                for name, rows in parts.items():
                    if name < each.cursor.name or (name == each.cursor.name and each.cursor.done):
                        continue
                    taken = asyncio.create_task(each.take(name, rows))
                    if (life, name) == (0, "1"):
                        for _ in range(30):
                            await asyncio.sleep(0)
                        taken.cancel()
                        await asyncio.gather(taken, return_exceptions=True)
                        break
                    await taken
                    if life == 1:
                        break
                if life == 2:
                    await each.end()
                await intake.close()
            tables = {name: pa.Table.from_batches([rows]) for name, rows in parts.items()}
            wanted = identified_in_turn(tables, LATENESS)
            assert 100 < wanted.total() < 450
            assert received_rows(await taking) == wanted

    run(work())


def alone_query() -> ab.Query:
    q = ab.Query("alone")
    q.output("alerts", q.source("load", "host string, load double").where("load >= 0", name="busy"))
    return q


def alone_plan(query: ab.Query) -> Plan:
    return ab.full_mesh(
        query.graph,
        {"load": ("paris", "tokyo")},
        {"busy": ("paris", "tokyo")},
        (ab.Subscription("alerts@paris", "alerts", "paris"),),
    )


def test_rows_without_identity_count_once(tmp_path: Path) -> None:
    """Though they come in another order when they come again."""
    query, dice = alone_query(), random.Random(5)
    rows = partitions(5, 600)["0"]
    ts = NOON + np.arange(600) * 1000
    rows = rows.set_column(0, "ts", pa.array(ts).cast(pa.timestamp("us", "UTC")))

    async def work() -> None:
        async with Sites(query.graph, alone_plan(query), ("paris", "tokyo"), tmp_path) as running:
            taking = asyncio.create_task(take_count(Receiver(running.deployment(), "alerts@paris"), 600))
            batch, crashed = 0, False
            while batch < 12:
                intake = Intake(running.deployment(), "test@paris", running.journals["paris"])
                memory = tmp_path / "m.json"
                numbered = Numbered(running.graph.sources[0], ("paris", "tokyo"), intake, memory)
                await numbered.start()
                numbered.began("run")
                while batch < 12:
                    part = rows.slice(50 * batch, 50)
                    if crashed:
                        order = list(range(50))
                        dice.shuffle(order)
                        part = part.take(pa.array(order))
                    work = asyncio.create_task(numbered.take("run", batch, part))
                    crashed = batch % 4 == 1 and not crashed
                    if crashed:
                        for _ in range(dice.randrange(30)):
                            await asyncio.sleep(0)
                        work.cancel()
                        await asyncio.gather(work, return_exceptions=True)
                        break
                    await work
                    batch += 1
                await intake.close()
            got = pa.Table.from_batches(await taking)
            assert sorted(got["load"].to_pylist()) == sorted(rows["load"].to_pylist())
            intake = Intake(running.deployment(), "test@paris", running.journals["paris"])
            lost = Numbered(running.graph.sources[0], ("paris", "tokyo"), intake, tmp_path / "other.json")
            with pytest.raises(ConfigError, match="600 of its tuples are known, and this site has forgotten"):
                await lost.start()
            await intake.close()

    run(work())


async def take_count(receiver: Receiver, count: int) -> list[Batch]:
    got: list[Batch] = []
    async with receiver:
        while sum(rows.num_rows for rows in got) < count:
            taken = await receiver.take()
            assert taken is not None
            got.append(taken[0])
    return got
