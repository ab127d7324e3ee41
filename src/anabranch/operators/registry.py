"""Every operator and its kernel. What is in here is under test: the conformance suite runs over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.graph import (
    Aggregate,
    CountAggregate,
    Custom,
    Filter,
    Graph,
    Join,
    Map,
    Operator,
    TopK,
    Union,
)
from anabranch.operators.aggregate import AggregateKernel
from anabranch.operators.count_aggregate import CountAggregateKernel
from anabranch.operators.custom import CustomKernel
from anabranch.operators.custom_window import CustomWindowKernel
from anabranch.operators.filter import FilterKernel
from anabranch.operators.join import JoinKernel
from anabranch.operators.kernel import Kernel
from anabranch.operators.map import MapKernel
from anabranch.operators.top_k import TopKKernel
from anabranch.operators.union import UnionKernel


def _custom(operator: Custom, graph: Graph) -> Kernel:
    return CustomKernel(operator, graph) if operator.window is None else CustomWindowKernel(operator, graph)


KERNELS: dict[type, Callable[[Any, Graph], Kernel]] = {
    Filter: FilterKernel,
    Map: MapKernel,
    Union: UnionKernel,
    Join: JoinKernel,
    Aggregate: AggregateKernel,
    CountAggregate: CountAggregateKernel,
    TopK: TopKKernel,
    Custom: _custom,
}


def kernel(operator: Operator, graph: Graph) -> Kernel:
    """A fresh replica of ``operator``, which is part of ``graph``."""
    return KERNELS[type(operator)](operator, graph)
