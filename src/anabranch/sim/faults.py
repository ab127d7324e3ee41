"""Faults, as small structs: what breaks, where and when. Times are seconds on the inputs' own time line."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from anabranch.graph import Graph
from anabranch.link_faults import Cut, FaultError, Reopen, Slow, Stall
from anabranch.plan import Plan, PlanError, check_plan
from anabranch.topology import Topology

__all__ = [
    "Burst",
    "ClockOffset",
    "Crash",
    "Cut",
    "Fault",
    "FaultError",
    "Redeliver",
    "Reopen",
    "Replan",
    "Slow",
    "SlowDisk",
    "Stall",
    "check_faults",
    "faults_from_json",
    "load_faults",
]


class Crash(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """A site stops at ``at`` and restarts at ``until`` (None: never). Its memory is lost, with
    ``keep_log=False`` its disk too (it comes back empty), with ``lose_tail`` the last so many records of each
    of its logs."""

    site: str
    at: float
    until: float | None = None
    keep_log: bool = True
    lose_tail: int = 0


class EngineCrash(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The engines of a site, where they are processes of their own, die at ``at`` and are started again; with
    ``keep_checkpoint=False`` they have forgotten all."""

    site: str
    at: float
    keep_checkpoint: bool = True


class ClockOffset(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """From ``at`` on the site's clock is ahead by ``by`` seconds, and runs ``skew`` seconds a second too
    fast."""

    site: str
    by: float
    at: float = 0.0
    skew: float = 0.0


class SlowDisk(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Appends on ``site`` take ``delay`` seconds."""

    site: str
    at: float
    until: float
    delay: float


class Redeliver(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The last ``records`` records that each branch carried from ``a`` to ``b`` arrive a second time."""

    a: str
    b: str
    at: float
    records: int


class Burst(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The producer of ``source`` holds its tuples from ``at`` and sends all of them at once at ``until``."""

    source: str
    at: float
    until: float


class Replan(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Site ``site`` is handed a new plan at ``at``; it spreads from there."""

    site: str
    at: float
    plan: Plan


Fault = (
    Crash | EngineCrash | Cut | Stall | Slow | ClockOffset | SlowDisk | Reopen | Redeliver | Burst | Replan
)


def load_faults(path: str | Path) -> tuple[Fault, ...]:
    """The faults of a ``.json`` or ``.toml`` file: a list (in TOML: ``[[faults]]``) of tables such as
    ``{type = "Crash", site = "paris", at = 30, until = 90}``."""
    path = Path(path)
    try:
        if path.suffix == ".toml":
            return _faults(tomllib.loads(path.read_text("utf-8")))
        return faults_from_json(path.read_bytes())
    except tomllib.TOMLDecodeError as error:
        raise FaultError(f"{path}: the list of faults is not TOML: {error}") from None
    except OSError as error:
        raise FaultError(f"{path}: cannot be read ({error.strerror or error}); check the path") from None
    except (ValueError, RecursionError) as error:
        raise FaultError(f"{path}: {error}") from None


def faults_from_json(text: bytes | str) -> tuple[Fault, ...]:
    """The faults of a JSON array, or of an object whose only field ``faults`` is one."""
    try:
        return _faults(msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise FaultError(f"the list of faults is not JSON: {error}") from None


def check_faults(faults: Sequence[Fault], graph: Graph, topology: Topology) -> None:
    """Raises FaultError unless each fault can happen to this query on these sites."""
    for i, fault in enumerate(faults):
        where = f"fault {i + 1} ({type(fault).__name__})"
        _check_numbers(fault, where)
        for field in ("site", "a", "b"):
            name = getattr(fault, field, None)
            if name is not None and name not in topology.names:
                raise FaultError(f"{where}: {field} is {name!r}; the sites are {', '.join(topology.names)}")
        if isinstance(fault, Burst) and fault.source not in [source.name for source in graph.sources]:
            known = ", ".join(source.name for source in graph.sources)
            raise FaultError(f"{where}: source is {fault.source!r}; the sources are {known}")
        if isinstance(fault, Replan):
            try:
                check_plan(fault.plan, graph, topology)
            except PlanError as error:
                raise FaultError(f"{where}: {error}") from None


def _faults(data: Any) -> tuple[Fault, ...]:
    if isinstance(data, dict):
        if list(data) != ["faults"]:
            raise FaultError(
                f"expected a list of faults named 'faults', got {', '.join(map(repr, data)) or 'nothing'}"
            )
        data = data["faults"]
    if not isinstance(data, list):
        raise FaultError("expected a list of faults")
    faults = []
    for i, item in enumerate(data):
        kind = item.get("type") if isinstance(item, dict) else None
        where = f"fault {i + 1}" + (f" ({kind})" if isinstance(kind, str) else "")
        try:
            faults.append(msgspec.convert(item, Fault))
        except msgspec.ValidationError as error:
            raise FaultError(f"{where}: {error}; the types are {', '.join(_NAMES)}") from None
        _check_numbers(faults[-1], where)
    return tuple(faults)


_NAMES = tuple(kind.__name__ for kind in Fault.__args__)


def _check_numbers(fault: Fault, where: str) -> None:
    for field in fault.__struct_fields__:
        value = getattr(fault, field)
        if isinstance(value, float | int) and not math.isfinite(value):
            raise FaultError(f"{where}: {field} is {value}; it must be a finite number")
    at, until = fault.at, getattr(fault, "until", None)
    if until is not None and until <= at:
        raise FaultError(f"{where}: it ends at {until}, not after it began at {at}; raise until")
    if getattr(fault, "a", 0) == getattr(fault, "b", 1):
        raise FaultError(f"{where}: a and b are the same site; name two")
    least = {"factor": 0.0, "delay": 0.0, "records": 1, "lose_tail": 0}
    for field, bound in least.items():
        value = getattr(fault, field, bound)
        if value < bound:
            raise FaultError(f"{where}: {field} is {value}; it must be {bound} or more")
    if isinstance(fault, ClockOffset) and fault.skew <= -1:
        raise FaultError(f"{where}: skew is {fault.skew}; at -1 or less the clock would not advance")
