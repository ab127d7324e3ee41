"""What processes tell does not fill the disk."""

from pathlib import Path

import pytest

from anabranch.protocols.events import Gap, Rejected
from anabranch.site import journal
from anabranch.site.journal import Journal, words_to


def test_a_journal_that_is_long_is_put_aside_and_one_such_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MOST", 2000)
    told = Journal(tmp_path / "agent.jsonl", site="paris")
    for number in range(200):
        told.write("something", number=number)
    told.close()
    assert {path.name for path in tmp_path.iterdir()} == {"agent.jsonl", "agent.old"}
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 5000
    assert '"number":199' in (tmp_path / "agent.jsonl").read_text()


def test_so_is_what_a_process_says_each_time_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MOST_WORDS", 100)
    path = tmp_path / "driver.err"
    for life in range(20):
        with words_to(path) as words:
            words.write(f"life {life}\n".encode() * 10)
    assert {each.name for each in tmp_path.iterdir()} == {"driver.err", "driver.err.old"}
    assert path.read_text().splitlines()[-1] == "life 19"
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) < 500


def test_events_without_end_are_counted_and_not_all_written(tmp_path: Path) -> None:
    told = Journal(tmp_path / "agent.jsonl")
    for number in range(10_000):
        told.event(Rejected("?", "paris", f"nonsense {number}"))
    told.event(Gap("load", "paris", 1, 2))
    told.close()
    lines = (tmp_path / "agent.jsonl").read_text().splitlines()
    assert told.total("events") == 10_001
    assert len(lines) < 1_000
    assert '"nonsense 0"' in lines[0]
    assert '"Gap"' in lines[-1]
