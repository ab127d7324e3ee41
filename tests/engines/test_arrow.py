"""The Arrow engine: rows before punctuations, one emission an export, nothing said twice."""

import pyarrow as pa
import pytest

from anabranch.engines.arrow import ArrowEngine
from anabranch.graph import Aggregate, Column, CountAggregate, Custom, Filter, Graph, Map, Source, Union
from anabranch.operators.state import SnapshotError
from anabranch.streams.batch import with_ids
from anabranch.streams.punctuation import BEGINNING, END

COLUMNS = (Column("k", "bigint"),)
SCHEMA = with_ids(pa.schema({"k": pa.int64()}))


def graph(*operators):
    return Graph("q", (Source("a", COLUMNS), Source("b", COLUMNS)), operators, ())


DIAMOND = graph(
    Filter("odd", "a", "k % 2 = 1"),
    Map("more", "a", (("k", "k + 10"),)),
    Union("both", ("odd", "more")),
    Aggregate("total", "both", 10, 10, (), (("total", "sum(k)"),)),
)


def rows(*ks, ts=1):
    n = len(ks)
    return pa.RecordBatch.from_pydict(
        {"_ts": [ts] * n, "_hi": [0] * n, "_lo": list(ks), "k": ks}, schema=SCHEMA
    )


def said(emissions):
    return {
        e.stream: (None if e.rows is None else sorted(e.rows.column(-1).to_pylist()), e.punctuation)
        for e in emissions
    }


def engine_of(*args, **kwargs):
    engine = ArrowEngine(*args, **kwargs)
    engine.start(dict.fromkeys(engine.inputs, BEGINNING))
    return engine


def test_inputs_are_what_is_taken_in_from_outside():
    engine = ArrowEngine(DIAMOND, ("both", "odd"))
    assert engine.inputs == ("a", "more")
    assert engine.outputs == ("odd", "both")
    assert engine.exports == ("odd", "both")


def test_a_diamond_waits_for_both_ways():
    engine = engine_of(DIAMOND, DIAMOND.order())
    assert said(engine.feed("a", rows(1, 2), 12)) == {
        "odd": ([1], 12),
        "more": ([11, 12], 12),
        "both": ([1, 11, 12], 12),
        "total": ([24], 12),
    }


def test_only_exports_are_emitted_and_only_what_is_new():
    engine = engine_of(DIAMOND, DIAMOND.order(), ("total",))
    assert engine.feed("a", rows(1), None) == []
    assert said(engine.feed("a", None, 5)) == {"total": (None, 5)}
    assert engine.feed("a", None, 5) == []
    assert engine.feed("a", None, 3) == []
    assert engine.feed("a", rows(), None) == []
    assert said(engine.feed("a", None, END)) == {"total": ([12], END)}
    assert engine.feed("a", None, END) == []


def test_rows_are_counted_for_each_operator():
    engine = engine_of(DIAMOND, DIAMOND.order(), ())
    engine.feed("a", rows(1, 2, 3), 20)
    assert engine.rows == {"odd": (3, 2), "more": (3, 3), "both": (5, 5), "total": (5, 1)}


def test_complete_from_goes_through_all_operators():
    engine = ArrowEngine(DIAMOND, DIAMOND.order(), ("both", "total"))
    assert engine.start({"a": 7}) == {"both": 7, "total": 17}
    assert engine.start({"a": END}) == {"both": END, "total": END}


def test_what_is_not_there_is_named():
    with pytest.raises(ValueError, match=r"query 'q' has no operator \['absent'\]; it has \['odd',"):
        ArrowEngine(DIAMOND, ("absent", "odd"))
    with pytest.raises(ValueError, match=r"stream 'more' cannot be exported: this fragment yields \['odd'\]"):
        ArrowEngine(DIAMOND, ("odd",), ("more",))


def test_a_snapshot_goes_on_in_a_fresh_engine():
    first = engine_of(DIAMOND, DIAMOND.order(), ("total",))
    first.feed("a", rows(1, 2), 4)
    second = ArrowEngine(DIAMOND, DIAMOND.order(), ("total",))
    second.restore(first.snapshot())
    second.start({"a": BEGINNING})
    assert second.feed("a", None, 4) == []
    assert said(second.feed("a", rows(5, ts=6), 10)) == {"total": ([1 + 11 + 12 + 5 + 15], 10)}


def test_the_snapshot_of_another_fragment_and_garbage_are_refused():
    engine = ArrowEngine(DIAMOND, ("odd",))
    with pytest.raises(SnapshotError, match=r"it is of fragment \['more'\]"):
        engine.restore(ArrowEngine(DIAMOND, ("more",)).snapshot())
    with pytest.raises(SnapshotError, match=r"fragment \['odd'\] cannot restore this snapshot: its 7 bytes"):
        engine.restore(b"garbage")


def test_history_is_needed_only_by_operators_that_depend_on_it():
    count = graph(CountAggregate("pairs", "a", 2, 1, (), (("total", "sum(k)"),)))
    assert ArrowEngine(count, ("pairs",)).historic
    assert not ArrowEngine(DIAMOND, DIAMOND.order()).historic


def test_an_old_punctuation_is_news_to_an_operator_that_no_longer_waits():
    count = graph(CountAggregate("pairs", "a", 1, 1, (), (("total", "sum(k)"),)))
    peer = engine_of(count, ("pairs",))
    peer.feed("a", rows(1, ts=1), 2)
    engine = ArrowEngine(count, ("pairs",))
    assert engine.start({"a": 0}) == {"pairs": END}
    assert engine.feed("a", rows(3, ts=3), 5) == []
    engine.restore(peer.snapshot())
    assert engine.start({"a": 0}) == {"pairs": 2}
    assert said(engine.feed("a", None, 5)) == {"pairs": ([3], 5)}


def test_a_punctuation_that_came_before_completeness_was_known_counts_afterwards():
    count = graph(CountAggregate("pairs", "a", 1, 1, (), (("total", "sum(k)"),)))
    engine = ArrowEngine(count, ("pairs",))
    engine.start({"a": END})
    assert engine.feed("a", rows(3, ts=3), 5) == []
    assert engine.start({"a": BEGINNING}) == {"pairs": BEGINNING}
    assert said(engine.feed("a", None, 5)) == {"pairs": ([3], 5)}


def test_poison_is_an_event_that_names_the_site():
    raising = graph(Custom("raising", "a", "operator:no_such_thing", COLUMNS))
    with pytest.raises(ValueError, match="cannot load 'operator:no_such_thing'"):
        ArrowEngine(raising, ("raising",))
    engine = engine_of(graph(Custom("raising", "a", "operator:not_", COLUMNS)), ("raising",), at="oslo")
    assert engine.events() == []
    assert said(engine.feed("a", rows(7), 9)) == {"raising": (None, 9)}
    (event,) = engine.events()
    assert (event.operator, event.at, event.timestamp, event.hi, event.lo) == ("raising", "oslo", 1, 0, 7)
    assert engine.events() == []
