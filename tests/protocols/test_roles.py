"""What a site has to do under a plan: which operator replicas share a fragment, what it takes, serves."""

from hypothesis import given
from hypothesis import strategies as st
from pieces import COLUMNS

from anabranch.graph import Aggregate, CountAggregate, Filter, Graph, Join, Operator, Output, Source, Union
from anabranch.plan import Branch, Plan, Subscription, full_mesh
from anabranch.protocols.roles import FragmentRole, Roles, historic, roles, spans

SITES = ("a", "b", "c")
A = ("a",)


def graph(*operators: Operator) -> Graph:
    return Graph(
        "q", (Source("s", COLUMNS), Source("t", COLUMNS)), operators, (Output("o", operators[-1].name),)
    )


def everywhere(q: Graph, replicas: dict[str, tuple[str, ...]], entry: str = "a") -> Plan:
    entries = {"s": (entry,), "t": (entry,)}
    return full_mesh(q, entries, replicas, [Subscription("app", "o", "c")])


CHAIN = graph(Filter("f", "s", "v > 0"), Filter("g", "f", "v > 1"), Filter("h", "g", "v > 2"))


def test_operators_that_only_feed_each_other_are_one_fragment() -> None:
    found = roles(CHAIN, everywhere(CHAIN, {"f": A, "g": A, "h": A}), "a")
    assert found.fragments == (FragmentRole(("f", "g", "h"), ("s",), ("h",), ("s", "f", "g")),)
    assert found.ingresses == {"s": ("a",)}
    assert found.entries == {"s": (), "t": ()}


def test_a_branch_from_elsewhere_cuts_a_fragment_in_two() -> None:
    found = roles(CHAIN, everywhere(CHAIN, {"f": A, "g": ("a", "b"), "h": A}), "a")
    assert found.fragments == (
        FragmentRole(("f", "g"), ("s",), ("f", "g"), ("s", "f")),
        FragmentRole(("h",), ("g",), ("h",), ("g",)),
    )
    assert found.ingresses == {"s": ("a",), "g": ("a", "b")}
    assert found.consumers["f"] == ("b",), "its replica of g needs no branch of f"


def test_a_site_without_replicas_has_nothing_to_do() -> None:
    assert roles(CHAIN, everywhere(CHAIN, {"f": A, "g": A, "h": A}), "b") == Roles({}, {}, (), {})


def test_an_operator_that_depends_on_all_of_history_is_a_fragment_of_its_own() -> None:
    q = graph(
        Filter("f", "s", "v > 0"),
        CountAggregate("n", "f", 2, 1, (), (("c", "count(*)"),)),
        Filter("h", "n", "c > 0"),
    )
    found = roles(q, everywhere(q, {"f": A, "n": A, "h": A}), "a")
    assert [role.operators for role in found.fragments] == [("f",), ("n",), ("h",)]


def test_a_fragment_that_would_take_in_what_it_yields_is_torn() -> None:
    """``u`` takes ``f`` from two sites, and ``g``, through which ``f`` would be in its own fragment."""
    q = graph(Filter("f", "s", "v > 0"), Filter("g", "f", "v > 1"), Union("u", ("f", "g")))
    plan = everywhere(q, {"f": ("a", "b"), "g": A, "u": A})
    branches = [b for b in plan.branches if (b.stream, b.source, b.target) != ("f", "b", "a")]
    fused = roles(q, Plan(1, "", plan.entries, plan.replicas, plan.subscriptions, tuple(branches)), "a")
    assert [role.operators for role in fused.fragments] == [("f", "g", "u")]
    torn = roles(q, plan, "a")
    assert [role.operators for role in torn.fragments] == [("f",), ("g", "u")]
    assert torn.fragments[1].inputs == ("f",)


def test_spans_add_up_the_windows_on_the_longest_way() -> None:
    q = graph(
        Join("j", "s", "t", 10, (), "true"),
        Aggregate("w", "j", 7, 7, (), (("n", "count(*)"),)),
        Aggregate("x", "s", 30, 30, (), (("n", "count(*)"),)),
        Union("u", ("w", "x")),
    )
    role = FragmentRole(("j", "w", "x", "u"), ("s", "t"), ("j", "u"), ("s", "t", "j", "w", "x"))
    assert spans(q, role) == {
        ("s", "j"): 10,
        ("t", "j"): 10,
        ("s", "u"): 30,
        ("t", "u"): 17,
        ("j", "u"): 7,
        ("w", "u"): 0,
        ("x", "u"): 0,
    }


@st.composite
def plans(draw: st.DrawFn) -> tuple[Graph, Plan]:
    operators: list[Operator] = []
    for number in range(draw(st.integers(1, 6))):
        name, above = f"o{number}", ["s", "t", *(op.name for op in operators)]
        one = draw(st.sampled_from(above))
        kind = draw(st.sampled_from(("filter", "union", "count")))
        if kind == "filter":
            operators.append(Filter(name, one, "v > 0"))
        elif kind == "union":
            operators.append(Union(name, tuple(dict.fromkeys((one, draw(st.sampled_from(above)))))))
        else:
            operators.append(CountAggregate(name, one, 2, 1, (), (("c", "count(*)"),)))
    q = graph(*operators)
    some = st.lists(st.sampled_from(SITES), min_size=1, unique=True).map(tuple)
    plan = everywhere(q, {op.name: draw(some) for op in operators}, draw(st.sampled_from(SITES)))
    needed: dict[tuple[str, str], Branch] = {}
    for branch in draw(st.permutations(plan.branches)):
        needed.setdefault((branch.stream, branch.target), branch)
    kept = [b for b in plan.branches if b in needed.values() or draw(st.booleans())]
    return q, Plan(1, "", plan.entries, plan.replicas, plan.subscriptions, tuple(kept))


@given(plans())
def test_no_fragments_wait_for_each_other_in_a_circle(case: tuple[Graph, Plan]) -> None:
    """An engine may wait for all its inputs before it yields anything."""
    q, plan = case
    waiting = {(site, role.operators): role for site in SITES for role in roles(q, plan, site).fragments}
    known = {(site, source) for source, sites in plan.entries.items() for site in sites}
    while ready := [
        key
        for key, role in waiting.items()
        if all(
            (branch.source, branch.stream) in known
            for branch in plan.branches
            if branch.target == key[0] and branch.stream in role.inputs
        )
    ]:
        for site, operators in ready:
            del waiting[site, operators]
            known |= {(site, name) for name in operators}
    assert not waiting


@given(plans(), st.sampled_from(SITES))
def test_every_plan_gives_every_replica_one_fragment_with_all_its_inputs(
    case: tuple[Graph, Plan], site: str
) -> None:
    q, plan = case
    found = roles(q, plan, site)
    here = [op for op in q.operators if site in plan.replicas[op.name]]
    assert sorted(name for role in found.fragments for name in role.operators) == sorted(
        op.name for op in here
    )
    for role in found.fragments:
        assert not set(role.operators) & set(role.inputs), "it would take in what it yields"
        assert role.operators == tuple(op.name for op in q.operators if op.name in role.operators)
        for name in role.operators:
            operator = q.node(name)
            for stream in operator.inputs:
                sources = tuple(b.source for b in plan.branches if (b.stream, b.target) == (stream, site))
                if stream in role.operators:
                    assert sources == (site,), "a branch from elsewhere would go unread"
                    assert not historic(operator)
                    assert not historic(q.node(stream))
                else:
                    assert found.ingresses[stream] == sources
                    assert stream in role.inputs
    for stream, targets in found.consumers.items():
        planned = [b.target for b in plan.branches if (b.stream, b.source) == (stream, site)]
        assert [t for t in planned if t != site] == [t for t in targets if t != site]
        assert (site in targets) == (site in planned and stream in found.ingresses)
    exported = {name for role in found.fragments for name in role.exports}
    assert exported == {op.name for op in here if found.consumers.get(op.name)}
