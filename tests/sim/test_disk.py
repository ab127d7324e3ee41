"""A log stores, serves by position, and knows a reader who left off in what is still there."""

import pyarrow as pa
import pytest

from anabranch.protocols.effects import OpenBranch
from anabranch.protocols.records import Writer
from anabranch.sim.disk import Disk, Stream
from anabranch.streams.batch import Batch, with_ids
from anabranch.streams.punctuation import BEGINNING


def rows(ts: int) -> Batch:
    return pa.RecordBatch.from_pydict({"_ts": [ts], "_hi": [0], "_lo": [ts]}, schema=with_ids(pa.schema([])))


def stream(*timestamps: int, generation: int = 1) -> Stream:
    made, writer = Stream(), Writer("out/s", generation)
    for ts in timestamps:
        made.append(writer.append(rows(ts)).record)
    return made


def go_on(old: Stream, *timestamps: int, generation: int) -> None:
    writer = Writer("out/s", generation)
    writer.recover(old.first, tuple(old.records))
    for ts in timestamps:
        old.append(writer.append(rows(ts)).record)


def request(position: int | None, generation: int = 1, complete_from: int = BEGINNING) -> OpenBranch:
    return OpenBranch("s", "a", position, generation, complete_from)


@pytest.mark.parametrize("position", [1, 2, 3])
def test_a_reader_goes_on_where_it_left_off(position: int) -> None:
    assert stream(10, 20, 30).resume(request(position)) == (position, True)


def test_a_reader_goes_on_at_the_trimmed_edge() -> None:
    s = stream(10, 20, 30)
    s.trim(1)
    assert s.resume(request(1)) == (1, True)
    assert s.resume(request(1, generation=9)) == (1, False)


def test_a_reader_of_what_was_trimmed_starts_over_at_the_edge() -> None:
    s = stream(10, 20, 30)
    s.trim(2)
    assert s.resume(request(1)) == (2, False)


def test_a_reader_of_a_lost_tail_starts_over() -> None:
    s = stream(10, 20, 30, 40)
    s.lose_tail(2)
    assert s.resume(request(4, complete_from=15)) == (1, False)
    go_on(s, 30, 40, 50, generation=2)
    assert s.resume(request(4, complete_from=25)) == (2, False), "position 3 holds something else now"
    assert s.resume(request(2)) == (2, True)
    assert s.resume(request(4, generation=2)) == (4, True)


def test_a_reader_beyond_the_end_starts_over_and_is_sent_the_last_record() -> None:
    assert stream(10, 20).resume(request(7, complete_from=99)) == (1, False)


def test_a_new_reader_starts_where_it_is_complete_from_what_it_asks_for() -> None:
    s = stream(10, 30, 20, 40)
    assert s.resume(request(None)) == (0, False)
    assert s.resume(request(None, complete_from=10)) == (1, False)
    assert s.resume(request(None, complete_from=30)) == (3, False)


def test_an_empty_log_is_read_from_its_beginning() -> None:
    assert Stream().resume(request(None)) == (0, False)
    assert Stream().resume(request(5)) == (0, False)


def test_trimming_leaves_the_last_record() -> None:
    s = stream(10, 20, 30)
    s.trim(99)
    assert (s.first, len(s.records), s.end) == (2, 1, 3)


def test_bytes_are_those_of_the_records_left() -> None:
    disk = Disk()
    disk.streams["out/s"] = s = stream(10, 20, 30, 40)
    size = s.records[0].size
    assert disk.bytes == 4 * size
    s.trim(1)
    s.lose_tail(1)
    assert disk.bytes == 2 * size
    assert [int(r.rows.column(0)[0].value) for r in disk.read("out/s")[1] if r.rows is not None] == [20, 30]
