"""Where a fragment must be cut for Spark: which operators one streaming query can run exactly.

Spark has two ways to give a query's stateful operators their watermark. With W the watermark of a batch, the
batch before having the watermark V <= W:

- *One for all.* Whatever an operator takes in must lie behind W, and windows that end up to W close. What
  joins yield in a batch lies behind W, since the later tuple of each pair is of that batch: joins may feed
  joins and windows. Windows yield what ends in (V, W], which is late for the next operator: they may feed
  none.
- *Each its own.* An operator takes in what lies behind V, so windows may feed windows and joins, exactly and
  in the same batch. But a join holds back the watermark of what it feeds, by its ``within``, so it may feed
  nothing that goes by one.

Each of the two is exact for one shape. A fragment with both is cut between, and the stream there goes through
the site's log.

What is used twice in a query, Spark computes twice. Without state that costs time and nothing else; but of
two equal operators with state one comes to nothing. So what such an operator yields goes through the log if
it is used more than once. An operator that depends on all of history is alone in any case.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from anabranch.graph import Aggregate, CountAggregate, Custom, Graph, Join, TopK

Group = tuple[str, ...]
Way = Literal["one", "each"]


def cuts(graph: Graph, operators: Collection[str], exports: Collection[str]) -> tuple[Group, ...]:
    """``operators``, which might all run in one fragment with these ``exports``, in as few groups as are
    exact, in topological order.

    What an operator takes from one of another group goes through the log, and only from there. No group
    needs, by way of others, what it yields itself.

    >>> import anabranch as ab
    >>> q = ab.Query("q")
    >>> a, b = q.source("a", "k int"), q.source("b", "k int")
    >>> pairs = a.join(b, on="k", within="1 s", name="pairs")
    >>> counts = pairs.aggregate("1 s", n="count(*)", name="counts")
    >>> q.output("most", counts.aggregate("1 minute", most="max(n)", name="most"))
    >>> cuts(q.graph, q.graph.order(), ["most"])
    (('pairs', 'counts'), ('most',))
    >>> cuts(q.graph, q.graph.order(), ["pairs", "most"])
    (('pairs',), ('counts', 'most'))
    """
    mine = set(operators)
    shared = _shared(graph, mine, exports)
    group: dict[str, list[str]] = {}
    for operator in graph.operators:
        name = operator.name
        if name not in mine:
            continue
        fused = [stream for stream in dict.fromkeys(operator.inputs) if stream in mine - shared]
        feeders = [group[stream] for stream in fused]
        group[name] = [name]
        for joined in _choices(feeders):
            merged = _in_order(graph, {name, *(member for each in joined for member in each)})
            others = [each for each in _distinct(group) if not _meets(each, merged)]
            if (
                _watermark(graph, merged) is not None
                and not _takes_what_it_yields(graph, merged, shared)
                and _acyclic(graph, [*others, merged])
            ):
                for member in merged:
                    group[member] = merged
                break
    return tuple(tuple(each) for each in _distinct(group))


def _meets(part: Sequence[str], whole: Sequence[str]) -> bool:
    return any(name in whole for name in part)


def way(graph: Graph, group: Sequence[str], exports: Collection[str]) -> Way | None:
    """How Spark runs ``group`` exactly in one query; None: it does not."""
    shared = _shared(graph, set(group), exports)
    return None if _takes_what_it_yields(graph, group, shared) else _watermark(graph, group)


def _shared(graph: Graph, operators: set[str], exports: Collection[str]) -> set[str]:
    """The operators with state whose results are used more than once, be it by way of others without."""
    uses: dict[str, int] = {}
    for operator in reversed(graph.operators):
        if operator.name in operators:
            uses[operator.name] = (operator.name in exports) + sum(
                graph.node(consumer).inputs.count(operator.name)
                * (1 if _stateful(graph, consumer) else uses[consumer])
                for consumer in graph.consumers(operator.name)
                if consumer in operators
            )
    return {name for name, count in uses.items() if count > 1 and _stateful(graph, name)}


def _takes_what_it_yields(graph: Graph, group: Sequence[str], shared: set[str]) -> bool:
    """Whether a member feeds another with what goes through the log."""
    return any(stream in shared and stream in group for name in group for stream in graph.node(name).inputs)


def _stateful(graph: Graph, operator: str) -> bool:
    return windowed(graph, operator) or isinstance(graph.node(operator), Join | CountAggregate)


def _watermark(graph: Graph, group: Sequence[str]) -> Way | None:
    if any(isinstance(graph.node(name), CountAggregate) for name in group):
        return "each" if len(group) == 1 else None
    behind_windows, behind_joins = _fed(graph, group)
    if not behind_windows:
        return "one"
    return None if behind_joins else "each"


def windowed(graph: Graph, operator: str) -> bool:
    node = graph.node(operator)
    return isinstance(node, Aggregate | TopK) or (isinstance(node, Custom) and node.window is not None)


def _fed(graph: Graph, group: Sequence[str]) -> tuple[bool, bool]:
    """Whether within the group a window feeds a stateful operator, and whether a join does."""
    windows: set[str] = set()
    joins: set[str] = set()
    by_windows = by_joins = False
    for name in group:
        node = graph.node(name)
        from_windows = any(stream in windows for stream in node.inputs)
        from_joins = any(stream in joins for stream in node.inputs)
        if windowed(graph, name) or isinstance(node, Join):
            by_windows = by_windows or from_windows
            by_joins = by_joins or from_joins
            (joins if isinstance(node, Join) else windows).add(name)
        if from_windows:
            windows.add(name)
        if from_joins:
            joins.add(name)
    return by_windows, by_joins


def _choices(feeders: list[list[str]]) -> list[list[list[str]]]:
    """The groups to merge with, the best first: all, then each alone."""
    distinct: list[list[str]] = []
    for each in feeders:
        if not any(each is known for known in distinct):
            distinct.append(each)
    alone = [[each] for each in distinct]
    return [distinct, *alone] if len(distinct) > 1 else alone


def _distinct(group: dict[str, list[str]]) -> list[list[str]]:
    found: list[list[str]] = []
    for members in group.values():
        if not any(members is known for known in found):
            found.append(members)
    return found


def _in_order(graph: Graph, names: set[str]) -> list[str]:
    return [name for name in graph.order() if name in names]


def _acyclic(graph: Graph, groups: list[list[str]]) -> bool:
    number = {name: i for i, members in enumerate(groups) for name in members}
    needs = {
        i: {
            number[stream]
            for name in members
            for stream in graph.node(name).inputs
            if stream in number and number[stream] != i
        }
        for i, members in enumerate(groups)
    }
    while True:
        free = [i for i, needed in needs.items() if not any(other in needs for other in needed)]
        if not free:
            return not needs
        for i in free:
            del needs[i]
