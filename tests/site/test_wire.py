"""Messages as bytes: what is said is heard, and nothing that anybody sends does harm."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from embedded import NOON, Sites, assert_ideal, busy_query, loads, run, take_all
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.log import names
from anabranch.log.codec import Malformed
from anabranch.log.connection import Access, connect
from anabranch.protocols import messages as m
from anabranch.protocols.records import Sequence
from anabranch.site import wire
from anabranch.site.producer import Producer
from anabranch.site.screen import OF_SITES, Screen
from anabranch.site.subscription import Receiver
from anabranch.streams.batch import assemble, ints, with_ids
from anabranch.streams.punctuation import BEGINNING, END
from anabranch.types import arrow_schema

QUERY = busy_query()
GRAPH = QUERY.graph
PLAN = ab.full_mesh(
    GRAPH,
    {"load": ("paris", "tokyo")},
    {"busy": ("paris", "tokyo")},
    (ab.Subscription("alerts@tokyo", "alerts", "tokyo"),),
    epoch=7,
)
STAMPED = with_ids(arrow_schema(GRAPH.sources[0].columns))
SCREEN = Screen(GRAPH, ("paris", "tokyo"), 1 << 20)


def stamped(count: int) -> pa.RecordBatch:
    numbers = ints(pa.array(range(1, count + 1), pa.int64()))
    columns = [pa.array([str(i) for i in numbers]), pa.array(numbers, pa.float64())]
    return assemble(numbers, numbers, numbers, columns, STAMPED)


def submitted(count: int) -> pa.RecordBatch:
    rows = stamped(count)
    names = ["ts", "host", "load"]
    return pa.RecordBatch.from_arrays([rows.column(0), rows.column(3), rows.column(4)], names=names)


COUNTS = st.integers(0, 2**62 - 1)
TIMES = st.integers(BEGINNING, END)
NAMES = st.text(min_size=1, max_size=8)
SEQUENCES = st.builds(
    lambda producer, first, more, promise, attempt: Sequence(producer, first, first + more, promise, attempt),
    NAMES,
    st.integers(0, 2**40),
    st.integers(5, 9),
    TIMES,
    COUNTS,
)
MIRRORS = st.builds(
    m.Mirror, st.just("load"), st.sampled_from([None, stamped(5)]), SEQUENCES, st.tuples(COUNTS, TIMES)
)
KNOWN = st.lists(st.tuples(NAMES, COUNTS), max_size=3).map(tuple)
PIECES = st.lists(st.tuples(MIRRORS, TIMES), max_size=3)
MESSAGES = st.one_of(
    st.builds(
        m.Submit,
        st.just("load"),
        NAMES,
        COUNTS,
        st.sampled_from([None, submitted(3), submitted(9).slice(2, 4)]),
        TIMES,
        TIMES,
        st.tuples(COUNTS, TIMES),
        COUNTS,
    ),
    MIRRORS,
    st.builds(m.Mirrored, st.just("load"), NAMES, COUNTS, TIMES, COUNTS),
    st.builds(m.CatchUp, st.just("load"), KNOWN),
    st.builds(
        lambda known, pieces, taken, more: m.CaughtUp(
            "load", known, tuple(p for p, _ in pieces), tuple(c for _, c in pieces), taken, more
        ),
        KNOWN,
        PIECES,
        KNOWN,
        st.booleans(),
    ),
    st.builds(m.Needed, NAMES, TIMES, COUNTS, st.tuples(COUNTS, NAMES), st.booleans()),
    st.builds(m.Heartbeat, st.tuples(COUNTS, NAMES)),
    st.just(m.PlanOffer(PLAN)),
    st.just(m.SnapshotRequest("busy")),
    st.builds(m.Snapshot, st.just("busy"), TIMES, st.binary(max_size=40)),
)


@given(st.sampled_from(("paris", "tokyo")), MESSAGES)
def test_what_is_said_is_heard_and_let_in(sender: str, message: m.Message) -> None:
    heard = wire.decode(wire.encode(sender, message))
    assert heard == (sender, message)
    if isinstance(message, OF_SITES) and sender not in ("paris", "tokyo"):
        with pytest.raises(Malformed, match="only sites say that"):
            SCREEN(*heard)
        sender = "tokyo"
    SCREEN(sender, message)


def test_a_plan_is_taken_from_sites_and_from_the_operator() -> None:
    for sender in ("paris", names.OPERATOR):
        SCREEN(sender, m.PlanOffer(PLAN))
    with pytest.raises(Malformed, match="only sites say that"):
        SCREEN(names.OPERATOR, m.Heartbeat((1, "")))


@given(st.binary(max_size=300))
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        wire.decode(data)


@given(MESSAGES, st.data())
def test_a_damaged_message_is_refused_or_a_message(message: m.Message, data: st.DataObject) -> None:
    good = bytearray(wire.encode("tokyo", message))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Malformed):
        SCREEN(*wire.decode(bytes(good[: data.draw(st.integers(1, len(good)))])))


def sequence(first: int = 0, until: int = 5, promise: int = 0) -> Sequence:
    return Sequence("p", first, until, promise, 0)


SUBMIT = m.Submit("load", "p", 0, submitted(3), 0, 0, (0, 0), 0)
MIRROR = m.Mirror("load", stamped(5), sequence(), (0, 0))
NULL = pa.record_batch({"ts": pa.array([None], STAMPED.field("_ts").type), "host": ["a"], "load": [0.5]})


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (msgspec.structs.replace(SUBMIT, source="x"), "no source 'x'"),
        (msgspec.structs.replace(SUBMIT, rows=stamped(3)), "rows of other columns"),
        (msgspec.structs.replace(SUBMIT, rows=NULL), "without timestamps"),
        (msgspec.structs.replace(SUBMIT, rows=submitted(50_000)), "bytes of tuples at once"),
        (msgspec.structs.replace(SUBMIT, first=-1), "counts nothing"),
        (msgspec.structs.replace(SUBMIT, promise=2**63), "outside of all times"),
        (msgspec.structs.replace(MIRROR, rows=submitted(3)), "rows of other columns"),
        (msgspec.structs.replace(MIRROR, rows=stamped(6)), "more tuples than its sequence"),
        (msgspec.structs.replace(MIRROR, sequence=sequence(9)), "ends before it begins"),
        (m.CaughtUp("load", (), (MIRROR,), (), ()), "not one complete_from"),
        (m.CaughtUp("load", (), (msgspec.structs.replace(MIRROR, source="y"),), (0,), ()), "another source"),
        (m.PlanOffer(msgspec.structs.replace(PLAN, replicas={"busy": ("mars",)})), "no site 'mars'"),
        (m.SnapshotRequest("x"), "no operator 'x'"),
        (m.Accepted("load", "p", 0, 0, 0), "are not told that"),
    ],
)
def test_a_message_that_cannot_be_meant_for_this_query_is_refused(message: m.Message, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        SCREEN("tokyo", message)


def test_a_flood_of_nonsense_is_counted_and_disturbs_nothing(tmp_path: Path) -> None:
    inputs = {"load": loads(300, 2)}

    async def work() -> None:
        async with Sites(GRAPH, PLAN, ("paris", "tokyo"), tmp_path) as sites:
            receiver = Receiver(sites.deployment(), "alerts@tokyo")
            taking = asyncio.create_task(take_all(receiver))
            flood = asyncio.create_task(nonsense(sites))
            async with Producer(sites.deployment(), "load", arrived=lambda: NOON - 1) as producer:
                for batch in inputs["load"].to_batches(max_chunksize=50):
                    await producer.send(batch, arrived=batch["ts"][0].value)
                    await asyncio.sleep(0.05)
                await flood
            assert_ideal(QUERY, inputs, {"alerts@tokyo": await taking}, PLAN)
            assert sites.agents["paris"].status().events["Rejected"] >= 400
            assert sites.agents["paris"].lives == 1

    run(work())


async def nonsense(sites: Sites) -> None:
    good = [wire.encode("paris", each) for each in (SUBMIT, MIRROR)]
    bad: list[bytes] = [b"", b"\xff" * 100, *(each[:-3] for each in good)]
    bad.append(wire.encode("x", msgspec.structs.replace(SUBMIT, rows=stamped(3))))
    bad.append(wire.encode("x", m.Accepted("load", "p", 0, 0, 0)))
    await _publish(sites, bad * 70)


async def _publish(sites: Sites, messages: list[Any]) -> None:
    connection = await connect(Access(sites.urls["paris"]), "stranger", lambda: None)
    for data in messages:
        await connection.client.publish(names.inbox("busy", "paris", "x"), data)
    await connection.client.flush(timeout=5)
    await connection.close()
