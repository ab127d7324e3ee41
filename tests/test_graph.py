"""A graph is data: its schemas, its questions and answers, its JSON, and what is refused in it."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.graph import Column, Custom, Filter, Graph, Join, Output, QueryError, Source


def example():
    q = ab.Query("netwatch")
    load = q.source("load", "host string, load double", lateness="2 seconds")
    rtt = q.source("rtt", "host string, peer string, ms double")
    busy = load.where("load > 0.5", name="busy")
    pairs = busy.join(rtt, on="host", within="10 seconds", where="ms > 50", name="pairs")
    worst = pairs.aggregate("10 s", every="5 s", by="host", n="count(*)", worst="max(ms)", name="worst")
    both = busy.union(load.select(host="host", load="load * 2", name="twice"), name="both")
    hundred = both.count_windows(100, every=10, by="host", mean="avg(load)", name="hundred")
    top = rtt.top(3, by="ms", window="1 minute", name="top")
    trend = load.custom("my.code:Trend", columns="slope double", window="7 s", every="2 s", name="trend")
    clean = load.custom("my.code:clean", columns="x int", name="clean")
    for stream in (worst, hundred, top, trend, clean):
        q.output(stream.name, stream, order="timestamp" if stream is top else None)
    return q.graph


EXAMPLE = example()


def test_a_graph_answers_questions_about_itself():
    assert EXAMPLE.schema("busy") == (Column("host", "string"), Column("load", "double"))
    assert [column.name for column in EXAMPLE.schema("hundred")] == [
        "window_start",
        "window_end",
        "host",
        "mean",
    ]
    assert EXAMPLE.node("pairs").within == 10_000_000
    assert EXAMPLE.node("rtt") is EXAMPLE.sources[1]
    assert EXAMPLE.consumers("load") == ("busy", "twice", "trend", "clean")
    assert EXAMPLE.consumers("worst") == ()
    assert EXAMPLE.order() == (
        "busy",
        "pairs",
        "worst",
        "twice",
        "both",
        "hundred",
        "top",
        "trend",
        "clean",
    )
    assert EXAMPLE.slides("load") == (2_000_000, 5_000_000)
    assert EXAMPLE.slides("rtt") == (5_000_000, 60_000_000)
    spans = {name: EXAMPLE.span(name) for name in EXAMPLE.order() if EXAMPLE.span(name)}
    assert spans == {"pairs": 10_000_000, "worst": 10_000_000, "top": 60_000_000, "trend": 7_000_000}


def test_a_consumer_fed_twice_by_a_stream_is_named_once():
    q = ab.Query("q")
    s = q.source("s", "x int")
    q.output("out", s.join(s, within="1 s", name="self"))
    assert q.graph.consumers("s") == ("self",)


def test_a_stream_that_is_not_there_is_named():
    for question in (EXAMPLE.schema, EXAMPLE.consumers, EXAMPLE.node, EXAMPLE.span, EXAMPLE.slides):
        with pytest.raises(
            QueryError, match="query 'netwatch' has no stream 'wurst'; its streams are load, rtt, busy"
        ):
            question("wurst")


def test_json_brings_back_an_equal_graph():
    again = Graph.from_json(EXAMPLE.to_json())
    assert again == EXAMPLE
    assert hash(again) == hash(EXAMPLE)
    assert again.to_json() == EXAMPLE.to_json()


def test_a_file_is_read_and_named_when_it_is_wrong(tmp_path):
    path = tmp_path / "query.json"
    path.write_bytes(EXAMPLE.to_json())
    assert Graph.load(path) == EXAMPLE
    path.write_text("{}")
    with pytest.raises(QueryError, match=r"query\.json: this is not a query in JSON: .*`name`"):
        Graph.load(path)
    with pytest.raises(QueryError, match=r"none\.json: cannot be read: No such file"):
        Graph.load(tmp_path / "none.json")


SOURCE = Source("s", (Column("x", "int"),))
OUT = (Output("out", "s"),)


@pytest.mark.parametrize(
    ("graph", "sentence"),
    [
        (
            Graph("q", (SOURCE,), (Filter("a", "nix", "x > 1"),), OUT),
            "operator 'a': there is no stream 'nix'; the streams are s, a",
        ),
        (
            Graph("q", (SOURCE,), (Filter("b", "a", "x > 1"), Filter("a", "s", "x > 1")), OUT),
            "operator 'b' stands before its input 'a'; put inputs first",
        ),
        (
            Graph("q", (SOURCE,), (Filter("a", "a", "x > 1"),), OUT),
            "operator 'a' is fed by itself: a -> a",
        ),
        (
            Graph(
                "q",
                (SOURCE,),
                (
                    Filter("a", "c", "x > 1"),
                    Filter("b", "a", "x > 1"),
                    Filter("c", "b", "x > 1"),
                    Filter("d", "c", ""),
                ),
                OUT,
            ),
            "a query must not go in a circle",
        ),
        (Graph("q", (SOURCE, SOURCE), (), OUT), "two streams are called 's'"),
        (Graph("q", (SOURCE,), (Filter("s", "s", "x > 1"),), OUT), "two streams are called 's'"),
        (Graph("q", (SOURCE,), (), (*OUT, *OUT)), "two outputs are called 'out'"),
        (Graph("q", (SOURCE,), (), ()), "query 'q' has no output"),
        (Graph("q", (SOURCE,), (), (Output("out", "t"),)), "output 'out': there is no stream 't'"),
        (Graph("q", (Source("s", ()),), (), OUT), "source 's' has no columns"),
        (Graph("q", (Source("s", (Column("x", "long"),)),), (), OUT), "write the type 'long' as 'bigint'"),
        (
            Graph("q", (SOURCE,), (Join("j", "s", "s", -5),), OUT),
            "operator 'j', within: a duration must be longer",
        ),
        (
            Graph("q", (SOURCE,), (Join("j", "s", "s", 2**62),), OUT),
            "operator 'j', within: a duration of more than",
        ),
        (
            Graph("q", (SOURCE,), (Custom("c", "s", "a:b", (Column("x", "int"),), every=5),), OUT),
            "operator 'c': 'every' and 'by' need a window",
        ),
        (Graph("2q", (SOURCE,), (), OUT), "'2q' is not a name"),
        (Graph("q", (Source("a.b", (Column("x", "int"),)),), (), OUT), "'a.b' is not a name"),
    ],
)
def test_a_graph_that_cannot_mean_anything_is_refused(graph, sentence):
    with pytest.raises(QueryError) as caught:
        graph.validate()
    assert sentence in str(caught.value)
    with pytest.raises(QueryError):
        Graph.from_json(msgspec.json.encode(graph))


def test_a_cycle_is_shown_in_the_direction_of_flow():
    operators = (Filter("a", "c", "x > 1"), Filter("b", "a", "x > 1"), Filter("c", "b", "x > 1"))
    with pytest.raises(
        QueryError, match=r"fed by itself: (a -> b -> c -> a|b -> c -> a -> b|c -> a -> b -> c)"
    ):
        Graph("q", (SOURCE,), operators, OUT).validate()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


def refused_or_sound(text):
    """Reads a graph; anything but a graph that answers, or a QueryError, fails the test."""
    try:
        graph = Graph.from_json(text)
    except QueryError as error:
        return str(error)
    assert [graph.schema(name) for name in graph.order()]
    return graph


@settings(deadline=None)
@given(st.one_of(st.binary(max_size=40), st.text(max_size=40), JSON.map(json.dumps)))
def test_any_bytes_are_a_graph_or_a_query_error(text):
    refused_or_sound(text)


def places(value, path=()):
    """Every place in a JSON document."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


PLACES = [path for path in places(json.loads(EXAMPLE.to_json())) if path]


@settings(deadline=None)
@given(st.data())
def test_any_change_to_a_graph_gives_a_graph_or_a_query_error(data):
    document = json.loads(EXAMPLE.to_json())
    for _ in range(data.draw(st.integers(1, 3))):
        *path, last = data.draw(st.sampled_from(PLACES))
        parent = document
        try:
            for key in path:
                parent = parent[key]
            other = data.draw(st.sampled_from(PLACES))
            change = data.draw(st.sampled_from(["drop", "replace", "copy"]))
            if change == "drop":
                del parent[last]
            elif change == "replace":
                parent[last] = data.draw(JSON)
            else:
                value = json.loads(EXAMPLE.to_json())
                for key in other:
                    value = value[key]
                parent[last] = value
        except (LookupError, TypeError):  # an earlier change took the place away
            continue
    refused_or_sound(json.dumps(document))


def test_json_that_is_nested_endlessly_is_refused():
    assert "not a query in JSON" in refused_or_sound("[" * 100_000)
    assert "not a query in JSON" in refused_or_sound('{"name": ' * 100_000)
