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
the site's log. An operator that depends on all of history is alone in any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from anabranch.graph import Aggregate, CountAggregate, Custom, Graph, Join, TopK

Group = tuple[str, ...]
Way = Literal["one", "each"]


def cuts(graph: Graph, operators: Iterable[str]) -> tuple[Group, ...]:
    """``operators``, which may all run in one fragment, in as few groups as are exact; in topological order.

    What an operator takes from one of another group goes through the log, and only from there. No group
    needs, by way of others, what it yields itself.

    >>> import anabranch as ab
    >>> q = ab.Query("q")
    >>> a, b = q.source("a", "k int"), q.source("b", "k int")
    >>> pairs = a.join(b, on="k", within="1 s", name="pairs")
    >>> counts = pairs.aggregate("1 s", n="count(*)", name="counts")
    >>> q.output("most", counts.aggregate("1 minute", most="max(n)", name="most"))
    >>> cuts(q.graph, q.graph.order())
    (('pairs', 'counts'), ('most',))
    """
    mine = set(operators)
    group: dict[str, list[str]] = {}
    for operator in graph.operators:
        name = operator.name
        if name not in mine:
            continue
        feeders = [group[stream] for stream in dict.fromkeys(operator.inputs) if stream in group]
        group[name] = [name]
        for joined in _choices(feeders):
            merged = _in_order(graph, {name, *(member for each in joined for member in each)})
            others = [each for each in _distinct(group) if not _meets(each, merged)]
            if way(graph, merged) is not None and _acyclic(graph, [*others, merged]):
                for member in merged:
                    group[member] = merged
                break
    return tuple(tuple(each) for each in _distinct(group))


def _meets(part: Sequence[str], whole: Sequence[str]) -> bool:
    return any(name in whole for name in part)


def way(graph: Graph, group: Sequence[str]) -> Way | None:
    """How Spark runs ``group`` exactly in one query; None: it does not."""
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
