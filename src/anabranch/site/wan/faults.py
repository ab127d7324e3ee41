"""What can be done to the links between live sites: as data, and as people write it.

>>> parse("slow paris tokyo 3 for 1 minute")
Slow(a='paris', b='tokyo', at=0.0, until=60.0, factor=3.0)
>>> parse("cut paris tokyo"), parse("heal paris tokyo")
(Cut(a='paris', b='tokyo', at=0.0, until=inf), Heal(a='paris', b='tokyo', at=0.0))
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from anabranch.durations import microseconds
from anabranch.link_faults import Cut, FaultError, Reopen, Slow, Stall
from anabranch.topology import Topology
from anabranch.types import QueryError


class Heal(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Every fault in force on the link from ``a`` to ``b`` is over."""

    a: str
    b: str
    at: float = 0.0


class Reset(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The connections that processes of ``a`` have opened to the server of ``b`` are broken, by an RST to
    both ends."""

    a: str
    b: str
    at: float = 0.0


Lasting = Cut | Stall | Slow
Fault = Lasting | Reopen | Reset | Heal

COMMANDS = """\
cut A B [for DURATION]
stall A B [for DURATION]
slow A B FACTOR [for DURATION]
heal A B
reset A B"""

_DO = {"cut": Cut, "stall": Stall, "slow": Slow, "heal": Heal, "reset": Reset}


def parse(line: str) -> Fault:
    """The fault that a line such as "cut paris tokyo for 10 s" orders, to begin at once. Without a duration
    it lasts until it is healed."""
    verb, *words = line.split()
    kind: Any = _DO.get(verb)
    if kind is None:
        raise FaultError(f"there is no command {verb!r}; the commands are {', '.join(_DO)}, status and quit")
    until = math.inf
    if "for" in words and kind not in (Heal, Reset):
        place = words.index("for")
        until = _seconds(" ".join(words[place + 1 :]), line)
        words = words[:place]
    form = next(form for form in COMMANDS.splitlines() if form.startswith(verb))
    if len(words) != (3 if kind is Slow else 2):
        raise FaultError(f"{line!r} is not complete, or too long; write it as: {form}")
    a, b = words[:2]
    if kind is Slow:
        try:
            return Slow(a, b, 0.0, until, float(words[2]))
        except ValueError:
            raise FaultError(
                f"{line!r}: the factor {words[2]!r} is not a number; write it as: {form}"
            ) from None
    fault: Fault = kind(a, b) if kind in (Heal, Reset) else kind(a, b, 0.0, until)
    return fault


def _seconds(text: str, line: str) -> float:
    try:
        return microseconds(text, repr(line)) / 1e6
    except QueryError as error:
        raise FaultError(str(error)) from None


def check(fault: Any, topology: Topology) -> Fault:
    """``fault`` itself if it can happen to a link of ``topology``; else raises FaultError, or TopologyError
    where a site is unknown."""
    kind = type(fault).__name__
    if not isinstance(fault, Fault):
        raise FaultError(f"{kind}: no link suffers that; leave only Cut, Stall, Slow and Reopen on the list")
    for name in (fault.a, fault.b):
        topology.site(name)
    if fault.a == fault.b:
        raise FaultError(f"{kind}: a and b are both {fault.a!r}, but a site has no link to itself; name two")
    if not 0 <= fault.at < math.inf:
        raise FaultError(f"{kind}: at is {fault.at}; give seconds from the start of the schedule")
    if isinstance(fault, Lasting) and not fault.until > fault.at:
        raise FaultError(f"{kind}: it ends at {fault.until}, not after it began at {fault.at}; raise until")
    if isinstance(fault, Slow) and not 0 <= fault.factor < math.inf:
        raise FaultError(f"{kind}: factor is {fault.factor}; it must be a number, 0 or more")
    return fault
