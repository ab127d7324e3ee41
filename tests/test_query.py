"""A query is built stream by stream, and a mistake is an error where it is made."""

from datetime import timedelta

import pytest

import anabranch as ab
from anabranch.graph import (
    Aggregate,
    Column,
    CountAggregate,
    Custom,
    Filter,
    Graph,
    Join,
    Map,
    Output,
    Source,
    TopK,
    Union,
)

LOAD = "host string, load double"
RTT = "host string, peer string, ms double"


@pytest.fixture
def q():
    return ab.Query("netwatch")


@pytest.fixture
def load(q):
    return q.source("load", LOAD)


@pytest.fixture
def rtt(q):
    return q.source("rtt", RTT)


def names(stream):
    return [column.name for column in stream.columns]


def test_the_example_of_the_readme(q, load, rtt):
    pairs = load.where("load > 0.5").join(rtt, on="host", within="10 seconds", where="ms > 50", name="pairs")
    worst = pairs.aggregate(
        "10 seconds", every="5 seconds", by="host", n="count(*)", worst="max(ms)", name="worst"
    )
    q.output("alerts", worst)
    assert q.graph == Graph(
        "netwatch",
        (
            Source("load", (Column("host", "string"), Column("load", "double"))),
            Source("rtt", (Column("host", "string"), Column("peer", "string"), Column("ms", "double"))),
        ),
        (
            Filter("filter1", "load", "load > 0.5"),
            Join("pairs", "filter1", "rtt", 10_000_000, ("host",), "ms > 50"),
            Aggregate(
                "worst",
                "pairs",
                10_000_000,
                5_000_000,
                ("host",),
                (("n", "count(*)"), ("worst", "max(ms)")),
            ),
        ),
        (Output("alerts", "worst"),),
    )
    assert worst.columns == (
        Column("window_start", "timestamp"),
        Column("window_end", "timestamp"),
        Column("host", "string"),
        Column("n", "bigint"),
        Column("worst", "double"),
    )


def test_every_operator_has_its_struct(q, load):
    source = q.source("seen", "x int", lateness=timedelta(seconds=2), timestamps="source", identity="content")
    q.output("all", load.union(load, name="both"), order="timestamp")
    load.select(host="host", twice="load * 2")
    load.count_windows(100, every=10, by=["host"], n="count(*)")
    load.top(3, by="load", window="1 minute")
    load.custom("my.code:clean", columns="a int")
    load.custom("my.code:Trend", columns="a int", window="10 s", every="5 s", by="host")
    assert q._sources[1] == Source("seen", (Column("x", "int"),), "source", 2_000_000, "content")
    assert source.name == "seen"
    a = (Column("a", "int"),)
    assert q.graph.operators == (
        Union("both", ("load", "load")),
        Map("map1", "load", (("host", "host"), ("twice", "load * 2"))),
        CountAggregate("count_aggregate1", "load", 100, 10, ("host",), (("n", "count(*)"),)),
        TopK("top_k1", "load", 3, "load", 60_000_000, 60_000_000),
        Custom("custom1", "load", "my.code:clean", a),
        Custom("custom2", "load", "my.code:Trend", a, 10_000_000, 5_000_000, ("host",)),
    )
    assert q.graph.outputs == (Output("all", "both", "timestamp"),)


def test_default_names_are_stable_and_avoid_those_taken(q, load):
    assert load.where("load > 1").name == "filter1"
    assert load.where("load > 2", name="filter3").name == "filter3"
    assert load.where("load > 3").name == "filter4"
    assert load.select(x="load").name == "map1"


def test_window_outputs_lead_with_the_window(load):
    window = ["window_start", "window_end"]
    assert names(load.aggregate("1 s", by=("HOST", "Load"), n="count(*)")) == [*window, "host", "load", "n"]
    assert names(load.count_windows(5, n="count(*)")) == [*window, "n"]
    assert names(load.top(1, by="load", window="1 s")) == [*window, "host", "load"]
    assert names(load.custom("a:B", columns="x int", window="1 s", by="host")) == [*window, "host", "x"]
    assert names(load.custom("a:b", columns="x int")) == ["x"]


def test_a_join_names_its_columns_once(q, load, rtt):
    assert names(load.join(rtt, on="host", within="1 s")) == ["host", "load", "peer", "ms"]
    assert names(load.join(rtt, within="1 s")) == ["host", "load", "right_host", "peer", "ms"]
    assert names(load.join(load, on="HOST", within="1 s", where="load < right_load")) == [
        "host",
        "load",
        "right_load",
    ]


def test_columns_that_are_called_as_parameters_go_into_a_mapping(load):
    assert names(load.select({"name": "host"}, x="load")) == ["name", "x"]
    assert names(load.aggregate("1 s", {"by": "count(*)", "every": "max(load)"}))[2:] == ["by", "every"]
    assert names(load.count_windows(1, {"name": "count(*)"}))[2:] == ["name"]


def test_a_graph_is_a_value(q, load):
    q.output("all", load.where("load > 0.5"))
    assert hash(q.graph) == hash(q.graph)
    assert q.graph == q.graph


def test_a_query_in_progress_stays_usable_after_a_mistake(q, load):
    with pytest.raises(ab.QueryError):
        load.where("nope", name="busy")
    assert load.where("load > 1", name="busy").name == "busy"


def test_a_stream_shows_its_columns(load):
    assert repr(load) == "<stream load: host string, load double>"


MISTAKES = {
    "there is no column 'lod' at character 1 of 'lod > 1'; did you mean 'load'?": lambda q, s: s.where(
        "lod > 1"
    ),
    "operator 'filter1', predicate: 'load' is double, not boolean": lambda q, s: s.where("load"),
    "operator 'x', predicate: the aggregate function MAX": lambda q, s: s.where("max(load) > 1", name="x"),
    "predicate: an expression is a string in SQL, not None": lambda q, s: s.where(None),
    "operator 'map1' computes no column": lambda q, s: s.select(),
    "A column called name goes into a mapping": lambda q, s: s.select(name="host"),
    "'upper(host)' is not a name": lambda q, s: s.select(name="upper(host)"),
    "operator 'map1', column 'x': an expression is a string": lambda q, s: s.select(x=1),
    "operator 'map1': a column cannot be called 'ts'": lambda q, s: s.select(ts="host"),
    "operator 'map1', column '_x': the name '_x' is reserved": lambda q, s: s.select(_x="host"),
    "column 'A' is there twice": lambda q, s: s.select(a="host", A="load"),
    "write x='expression'": lambda q, s: s.select(["host"]),
    "a union needs at least two": lambda q, s: s.union(),
    "'other' has (HOST string, load double); bring them into one form": lambda q, s: s.union(
        q.source("other", "HOST string, load double")
    ),
    "operator 'join1', on: there is no column 'peer'; the columns are host, load": lambda q, s: s.join(
        s, on="peer", within="1 s"
    ),
    "operator 'join1', on: column 'host' is string on the left and int on the right": lambda q, s: s.join(
        q.source("other", "host int"), on="host", within="1 s"
    ),
    "operator 'join1', on, right side 'other': there is no column 'load'": lambda q, s: s.join(
        q.source("other", "host string"), on=["host", "load"], within="1 s"
    ),
    "operator 'join1', on: column 'host' is there twice; name it once": lambda q, s: s.join(
        s, on=["host", "HOST"], within="1 s"
    ),
    "operator 'join1', within: '10' is not a duration": lambda q, s: s.join(s, within="10"),
    "operator 'join1', where: 'load' is double, not boolean": lambda q, s: s.join(
        s, within="1 s", where="load"
    ),
    "operator 'join1', where: ts at character 1": lambda q, s: s.join(
        s, within="1 s", where="ts > CAST(0 AS timestamp)"
    ),
    "column 'right_host' is there twice": lambda q, s: s.select(host="host", right_host="host").join(
        s, within="1 s"
    ),
    "<query> is not a stream": lambda q, s: s.join(q, within="1 s"),
    "operator 'aggregate1' has no aggregate": lambda q, s: s.aggregate("1 s"),
    "operator 'aggregate1', column 'n': '1 + 1' contains no aggregate function": lambda q, s: s.aggregate(
        "1 s", n="1 + 1"
    ),
    "operator 'aggregate1', by: there is no column 'zone'": lambda q, s: s.aggregate(
        "1 s", by="zone", n="count(*)"
    ),
    "operator 'aggregate1', by: column 'host' is there twice": lambda q, s: s.aggregate(
        "1 s", by=["host", "host"], n="count(*)"
    ),
    "by: a column is named by a string, not 1": lambda q, s: s.aggregate("1 s", by=[1], n="count(*)"),
    "operator 'aggregate1', every: a duration must be longer than zero": lambda q, s: s.aggregate(
        "1 s", every="0 s", n="count(*)"
    ),
    "a window's output has a column 'window_start' of its own": lambda q, s: s.aggregate(
        "1 s", window_start="min(ts)"
    ),
    "rename or leave out the one of that name": lambda q, s: s.aggregate("1 s", n="count(*)").top(
        1, by="n", window="1 s"
    ),
    "column 'host' is there twice; rename one": lambda q, s: s.aggregate("1 s", by="host", host="min(host)"),
    "operator 'count_aggregate1', count: 0 is not a number of tuples": lambda q, s: s.count_windows(
        0, n="count(*)"
    ),
    "operator 'count_aggregate1', every: '5' is not a number of tuples": lambda q, s: s.count_windows(
        9, every="5", n="count(*)"
    ),
    "operator 'top_k1', k: -1 is not a number of tuples": lambda q, s: s.top(-1, by="load", window="1 s"),
    "operator 'top_k1', k: True is not a number of tuples": lambda q, s: s.top(True, by="load", window="1 s"),
    "operator 'top_k1', by: there is no column 'ms'": lambda q, s: s.top(1, by="ms", window="1 s"),
    "'my code' is not a target; write it as 'package.module:name'": lambda q, s: s.custom(
        "my code", columns="a int"
    ),
    "is not a target": lambda q, s: s.custom(print, columns="a int"),
    "'every' and 'by' need a window": lambda q, s: s.custom("a:b", columns="a int", by="host"),
    "operator 'custom1', column 'a': there is no type 'foo'": lambda q, s: s.custom("a:b", columns="a foo"),
    "operator 'load': a stream of that name is there already": lambda q, s: s.where("true", name="load"),
    "source 'load': a stream of that name is there already": lambda q, s: q.source("load", LOAD),
    "source 'two words': 'two words' is not a name": lambda q, s: q.source("two words", LOAD),
    "source '_hidden': the name '_hidden' is reserved": lambda q, s: q.source("_hidden", LOAD),
    "source 'x', column 'load': there is no type 'dbl'": lambda q, s: q.source("x", "load dbl"),
    "source 'x', lateness: '2' is not a duration": lambda q, s: q.source("x", LOAD, lateness="2"),
    "source 'x', lateness: what the entry point stamps is never late": lambda q, s: q.source(
        "x", LOAD, lateness="2 s", timestamps="entry"
    ),
    "so its content does not identify it": lambda q, s: q.source(
        "x", LOAD, timestamps="entry", identity="content"
    ),
    "source 'x', timestamps: 'mine' is not a choice; use \"source\" or \"entry\"": lambda q, s: q.source(
        "x", LOAD, timestamps="mine"
    ),
    "source 'x', identity: 'hash' is not a choice": lambda q, s: q.source("x", LOAD, identity="hash"),
    "output 'all', order: 'id' is not a choice; use None or \"timestamp\"": lambda q, s: q.output(
        "all", s, order="id"
    ),
    "output 'all' is there already": lambda q, s: (q.output("all", s), q.output("all", s)),
    "output 'all': 'load' is not a stream": lambda q, s: q.output("all", "load"),
    "stream 'load' belongs to query 'other', not to 'netwatch'": lambda q, s: q.output(
        "all", ab.Query("other").source("load", LOAD)
    ),
    "query 'netwatch' has no output": lambda q, s: q.graph,
    "'net watch' is not a name": lambda q, s: ab.Query("net watch"),
    "a name must be a string, not 7": lambda q, s: ab.Query(7),
}


@pytest.mark.parametrize("sentence", MISTAKES)
def test_a_mistake_is_a_query_error_where_it_is_made(q, load, sentence):
    with pytest.raises(ab.QueryError) as caught:
        MISTAKES[sentence](q, load)
    assert sentence.replace("<query>", repr(q)) in str(caught.value)
    assert str(caught.value).endswith(".")
