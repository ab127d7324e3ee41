"""Every stream of a log has one writer: it numbers, chains generations, and knows what may go."""

from hypothesis import given
from hypothesis import strategies as st
from pieces import append, batch, log

from anabranch.protocols.effects import Trim
from anabranch.protocols.records import Writer
from anabranch.sim.disk import Stream
from anabranch.streams.punctuation import BEGINNING, END


def test_records_are_numbered_and_chained() -> None:
    records = log(([(10, 1)], 5), ([], 7), generation=4)
    assert [(r.generation, r.previous) for r in records] == [(4, 0), (4, 4)]
    again = Writer("out/s", 9)
    again.recover(0, records)
    made = again.append(batch((20, 2)))
    assert made.position == 2
    assert (made.record.generation, made.record.previous, made.record.high) == (9, 4, 10)
    assert (made.record.complete_from, made.record.punctuation) == (BEGINNING, 7)


def test_an_empty_log_knows_nothing() -> None:
    writer = Writer("out/s", 1)
    writer.recover(5, ())
    assert writer.index.first == 5, "it goes on where it was"
    record = writer.append(None)
    assert (record.position, record.record.complete_from, record.record.high) == (5, END, BEGINNING)


def test_every_record_knows_the_largest_timestamp_before_it() -> None:
    assert [r.high for r in log(([(30, 1)], 0), ([(10, 2)], 0), ([], 0), ([(40, 3)], 0), ([], 0))] == [
        BEGINNING,
        30,
        30,
        30,
        40,
    ]


def test_size_counts_rows_and_state() -> None:
    writer = Writer("out/s", 1)
    empty = writer.append(None).record.size
    assert writer.append(batch((1, 1))).record.size == empty + batch((1, 1)).nbytes
    assert writer.append(None, state=b"12345").record.size == empty + 5


@given(
    st.lists(st.lists(st.integers(0, 50), max_size=3), min_size=1, max_size=12),
    st.integers(-1, 60),
    st.data(),
)
def test_trimming_takes_only_records_behind_and_survives_a_restart(
    contents: list[list[int]], behind: int, data: st.DataObject
) -> None:
    writer, stream = Writer("out/s", 1), Stream()
    for number, timestamps in enumerate(contents):
        stream.append(append(writer, [(ts, number) for ts in timestamps], number))
    if data.draw(st.booleans()):
        writer = Writer("out/s", 2)
        writer.recover(stream.first, tuple(stream.records))
    for trim in writer.trim(behind):
        assert isinstance(trim, Trim)
        stream.trim(trim.keep)
    kept = {
        ts
        for record in stream.records
        if record.rows is not None
        for ts in record.rows["_ts"].cast("int64").to_pylist()
    }
    assert {ts for timestamps in contents for ts in timestamps if ts > behind} <= kept
    assert stream.records, "the last record stays"
    assert stream.end == len(contents)
    first = stream.records[0]
    gone = [ts for timestamps in contents[: stream.first] for ts in timestamps]
    assert first.high == max(gone, default=BEGINNING)
