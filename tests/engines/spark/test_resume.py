"""What makes a run resumable, and what becomes of a checkpoint that is not."""

from pathlib import Path

from one_site import Site

import anabranch as ab
from anabranch.engines.spark.resume import decide, forget
from anabranch.engines.spark.run import Input
from anabranch.log.blocking import Connection
from anabranch.streams.punctuation import BEGINNING


def test_what_was_half_deleted_goes_with_the_next(tmp_path: Path) -> None:
    half = tmp_path / "pairs.0123abcd.gone" / "spark"
    half.mkdir(parents=True)
    (half / "offsets").write_text("7")
    other = tmp_path / "worst"
    other.mkdir()
    (tmp_path / "pairs").mkdir()
    forget(tmp_path / "pairs")
    assert list(tmp_path.iterdir()) == [other]
    forget(tmp_path / "pairs")
    assert list(tmp_path.iterdir()) == [other]


def test_a_log_that_was_trimmed_before_anything_was_read_of_it_is_noticed(tmp_path: Path) -> None:
    q = ab.Query("q")
    q.output("busy", q.source("load", "load double").where("load > 0.5", name="busy"))
    site = Site(q.graph, ("busy",), ("busy",), tmp_path)
    try:
        for promise in range(1, 5):
            site.logs["load"].append(None, promise)
        began = decide(site.run(), site.settings, lambda: Connection(site.server.url))
        assert not began.resumed
        again = decide(site.run(), site.settings, lambda: Connection(site.server.url))
        assert again.resumed
        assert again.name == began.name
        site.connection.ask("STREAM.PURGE.q-in-load", {"seq": 3})
        anew = decide(site.run(load=Input(2, BEGINNING)), site.settings, lambda: Connection(site.server.url))
        assert not anew.resumed
        assert anew.reason == "the ingress log of load begins at 2, and has been read only to 0"
    finally:
        site.close()


def test_a_log_that_is_not_there_yet_is_no_hindrance(tmp_path: Path) -> None:
    q = ab.Query("q")
    q.output("busy", q.source("load", "load double").where("load > 0.5", name="busy"))
    site = Site(q.graph, ("busy",), ("busy",), tmp_path)
    try:
        began = decide(site.run(), site.settings, lambda: Connection(site.server.url))
        site.connection.ask("STREAM.DELETE.q-in-load")
        again = decide(site.run(), site.settings, lambda: Connection(site.server.url))
        assert (again.resumed, again.name) == (True, began.name)
    finally:
        site.close()
