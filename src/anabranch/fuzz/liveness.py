"""Which applications must see the end of their stream, however much was lost before.

Those that are reached at last, over sites that are up in the end, by a replica of every operator above them.
Three things excuse an application that stands still for ever: entry points whose clocks count wait for all
their peers; the last words of a producer that has closed, acknowledged and then lost from every disk, are not
repeated; and where no replica of an operator that depends on all of history has it any more, none can begin
again.
"""

from __future__ import annotations

from anabranch.fuzz.case import Case
from anabranch.fuzz.laws import loses_log, plans
from anabranch.graph import Source
from anabranch.plan import Plan
from anabranch.protocols.events import Degraded, Waiting
from anabranch.sim.faults import Crash
from anabranch.sim.run import Run


def must_end(case: Case, run: Run) -> set[str]:
    """The names of these applications. Where plans change, they must be reached under each."""
    down = {fault.site for fault in case.faults if isinstance(fault, Crash) and fault.until is None}
    waited = {(event.operator, event.at) for _, event in run.events if isinstance(event, Waiting)}
    return set.intersection(*(_reached(case, run, plan, down, waited) for plan in plans(case)))


def _reached(case: Case, run: Run, plan: Plan, down: set[str], waited: set[tuple[str, str]]) -> set[str]:
    live = {source.name: _entries(case, run, source, plan, down) for source in case.graph.sources}
    for operator in case.graph.operators:
        name = operator.name
        sites = {
            site
            for site in plan.replicas[name]
            if site not in down and all(_fed(plan, stream, live, site) for stream in operator.inputs)
        }
        live[name] = sites if any((name, site) not in waited for site in sites) else set()
    streams = {output.name: output.stream for output in case.graph.outputs}
    return {x.name for x in plan.subscriptions if _fed(plan, streams[x.output], live, x.name)}


def _entries(case: Case, run: Run, source: Source, plan: Plan, down: set[str]) -> set[str]:
    """The entry points that will have the last words of the source's producers."""
    points = set(plan.entries[source.name])
    crashes = [fault for fault in case.faults if isinstance(fault, Crash)]
    forgetful = points & {crash.site for crash in crashes if loses_log(crash)}
    if source.identity == "content":
        return points - down - forgetful
    clocked = source.timestamps == "entry"
    degraded = any(isinstance(event, Degraded) and event.source == source.name for _, event in run.events)
    alone = (plan.mirrors < 1 and not clocked) or degraded or points <= forgetful | down
    return set() if (clocked and points & down) or (forgetful and alone) else points - down


def _fed(plan: Plan, stream: str, live: dict[str, set[str]], target: str) -> bool:
    return any(x.stream == stream and x.target == target and x.source in live[stream] for x in plan.branches)
