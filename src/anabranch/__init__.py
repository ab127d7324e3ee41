"""One streaming query on several sites at once, its branches rejoined.

Each result arrives once, by the fastest path, as if nothing had failed.

>>> import anabranch as ab
>>> q = ab.Query("netwatch")
>>> q.output("busy", q.source("load", "host string, load double").where("load > 0.5"))
>>> [operator.name for operator in q.graph.operators]
['filter1']
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.engines.ideal import ideal
    from anabranch.engines.spark.replay import replay
    from anabranch.inputs import InputError, load_inputs
    from anabranch.plan import Branch, Plan, PlanError, Subscription, full_mesh, spread
    from anabranch.protocols.settings import Settings
    from anabranch.query import Query, Stream
    from anabranch.sim.faults import (
        Burst,
        ClockOffset,
        Crash,
        Cut,
        FaultError,
        Redeliver,
        Reopen,
        Replan,
        Slow,
        SlowDisk,
        Stall,
        load_faults,
    )
    from anabranch.sim.run import Run, simulate
    from anabranch.topology import Topology, TopologyError
    from anabranch.types import QueryError

_HOMES = {
    "anabranch.engines.ideal": ("ideal",),
    "anabranch.engines.spark.replay": ("replay",),
    "anabranch.inputs": ("InputError", "load_inputs"),
    "anabranch.plan": ("Branch", "Plan", "PlanError", "Subscription", "full_mesh", "spread"),
    "anabranch.protocols.settings": ("Settings",),
    "anabranch.query": ("Query", "Stream"),
    "anabranch.sim.faults": (
        "Burst",
        "ClockOffset",
        "Crash",
        "Cut",
        "FaultError",
        "Redeliver",
        "Reopen",
        "Replan",
        "Slow",
        "SlowDisk",
        "Stall",
        "load_faults",
    ),
    "anabranch.sim.run": ("Run", "simulate"),
    "anabranch.topology": ("Topology", "TopologyError"),
    "anabranch.types": ("QueryError",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Branch",
    "Burst",
    "ClockOffset",
    "Crash",
    "Cut",
    "FaultError",
    "InputError",
    "Plan",
    "PlanError",
    "Query",
    "QueryError",
    "Redeliver",
    "Reopen",
    "Replan",
    "Run",
    "Settings",
    "Slow",
    "SlowDisk",
    "Stall",
    "Stream",
    "Subscription",
    "Topology",
    "TopologyError",
    "full_mesh",
    "ideal",
    "load_faults",
    "load_inputs",
    "replay",
    "simulate",
    "spread",
]


def __getattr__(name: str) -> Any:
    """Names are imported when first used: who only defines a query does not wait for the compiled kernels."""
    if name not in _HOME:
        raise AttributeError(f"module 'anabranch' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
