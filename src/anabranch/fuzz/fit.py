"""Fitting a case to a smaller query: plans, inputs and lifeline follow the graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from anabranch.fuzz.case import Case
from anabranch.fuzz.queries import prune
from anabranch.graph import Graph, Join, Operator, Output, QueryError, Union
from anabranch.plan import Plan, full_mesh
from anabranch.sim.faults import Burst, Fault, Replan


def fitted(case: Case, graph: Graph) -> Case:
    """The case for ``graph``, a smaller query: what plans and inputs no longer need goes, branches that the
    smaller query needs anew come."""
    graph = prune(graph)
    sources = [source.name for source in graph.sources]
    streams = [*sources, *(operator.name for operator in graph.operators)]
    faults: list[Fault] = []
    for fault in case.faults:
        if isinstance(fault, Replan):
            faults.append(msgspec.structs.replace(fault, plan=_fitted_plan(fault.plan, case.graph, graph)))
        elif not isinstance(fault, Burst) or fault.source in sources:
            faults.append(fault)
    return msgspec.structs.replace(
        case,
        graph=graph,
        inputs={name: table for name, table in case.inputs.items() if name in sources},
        plan=_fitted_plan(case.plan, case.graph, graph),
        lifeline={name: site for name, site in case.lifeline.items() if name in streams},
        faults=tuple(faults),
    )


def without_output(case: Case, name: str) -> Case:
    outputs = tuple(output for output in case.graph.outputs if output.name != name)
    return fitted(case, msgspec.structs.replace(case.graph, outputs=outputs))


def removable_operators(graph: Graph) -> list[str]:
    """The operators, those nearest to the outputs first."""
    return [operator.name for operator in reversed(graph.operators)]


def without_operator(case: Case, name: str) -> Iterator[Case]:
    """The case with one of the operator's inputs in its place, wherever that makes a valid query."""
    operator = next(x for x in case.graph.operators if x.name == name)
    for stream in dict.fromkeys(operator.inputs):
        graph = _replaced(case.graph, operator, stream)
        if _valid(graph):
            yield fitted(case, graph)


def _replaced(graph: Graph, operator: Operator, stream: str) -> Graph:
    operators = tuple(_reading(x, operator.name, stream) for x in graph.operators if x is not operator)
    outputs = tuple(
        Output(x.name, stream if x.stream == operator.name else x.stream, x.order) for x in graph.outputs
    )
    return msgspec.structs.replace(graph, operators=operators, outputs=outputs)


def _reading(operator: Operator, before: str, after: str) -> Operator:
    if before not in operator.inputs:
        return operator
    changed: dict[str, Any]
    if isinstance(operator, Union):
        changed = {"inputs": tuple(after if name == before else name for name in operator.inputs)}
    elif isinstance(operator, Join):
        sides = {"left": operator.left, "right": operator.right}
        changed = {side: after if name == before else name for side, name in sides.items()}
    else:
        changed = {"input": after}
    return msgspec.structs.replace(operator, **changed)


def _valid(graph: Graph) -> bool:
    try:
        graph.validate()
    except QueryError:
        return False
    return True


def _fitted_plan(plan: Plan, before: Graph, graph: Graph) -> Plan:
    sources = [source.name for source in graph.sources]
    operators = [operator.name for operator in graph.operators]
    outputs = {output.name: output.stream for output in graph.outputs}
    subscriptions = [x for x in plan.subscriptions if x.output in outputs]
    full = full_mesh(
        graph,
        {name: sites for name, sites in plan.entries.items() if name in sources},
        {name: sites for name, sites in plan.replicas.items() if name in operators},
        subscriptions,
        epoch=plan.epoch,
        coordinator=plan.coordinator,
        mirrors=plan.mirrors,
    )
    had = {(branch.stream, branch.target) for branch in plan.branches}
    kept = tuple(x for x in full.branches if x in plan.branches or (x.stream, x.target) not in had)
    return msgspec.structs.replace(full, branches=kept)
