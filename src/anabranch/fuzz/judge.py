"""Judging a run: what each application received against the ideal run, and the events against what was lost.

Outside class ``loss`` the two must be equal as multisets, by lineage id and by content to the bit, in
canonical order where that was asked for, and complete. In class ``loss`` nothing wrong may arrive, and what
is missing must have been reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec
import pyarrow as pa

from anabranch.engines.ideal import ideal, ideal_poison
from anabranch.fuzz.case import Case
from anabranch.fuzz.liveness import must_end
from anabranch.fuzz.rows import Row, rows, times, without_sign_of_zero
from anabranch.graph import Aggregate, CountAggregate, Custom, Operator, Output, Source, TopK
from anabranch.plan import Subscription
from anabranch.protocols.events import Degraded, Disagreement, Gap, Late, Poisoned, Rejected, Trimmed, Waiting
from anabranch.sim.faults import Crash
from anabranch.sim.run import Run
from anabranch.streams.punctuation import END

ALARMS = (Gap, Degraded, Trimmed, Waiting, Rejected)
SHOWN = 3
"""Tuples that a sentence names."""


class Finding(msgspec.Struct, frozen=True):
    """One way in which a run is wrong: its kind, and a sentence about this case."""

    kind: str
    sentence: str

    def __str__(self) -> str:
        return self.sentence


def judge(case: Case, run: Run) -> list[Finding]:
    """What is wrong with the run; nothing if it passed."""
    expected = ideal(case.graph, oracle_inputs(case, run))
    outputs = {output.name: output for output in case.graph.outputs}
    findings: list[Finding] = []
    for application in case.plan.subscriptions:
        output = outputs[application.output]
        findings += _application(case, run, application, output, expected[output.name])
    findings += [*_events(case, run), *_poison(case, run), *_filters(run), *_costs(case, run)]
    unfinished = [name for name in run.stalled if case.klass != "loss" or name in must_end(case, run)]
    if unfinished:
        where = ", ".join(f"{name!r} at {run.stalled[name]}" for name in unfinished)
        findings.append(Finding("incomplete", f"streams of applications stand still: {where}"))
    return findings


def oracle_inputs(case: Case, run: Run) -> dict[str, pa.Table]:
    """The inputs as the ideal run takes them: with the timestamps of entry points, where these give them."""
    stamped = [source.name for source in case.graph.sources if source.timestamps == "entry"]
    return {name: run.accepted[name] if name in stamped else table for name, table in case.inputs.items()}


def _application(
    case: Case, run: Run, application: Subscription, output: Output, expected: pa.Table
) -> list[Finding]:
    name, received = application.name, run.deliveries[application.name]
    columns = [column.name for column in case.graph.schema(output.stream)]
    ideal_rows, got = rows(expected, columns), rows(received, columns)
    findings = _multiset(name, columns, ideal_rows, got)
    arrived = {row.id for row in got}
    missing = [row for row in ideal_rows if row.id not in arrived]
    if case.klass == "loss":
        missing = _unreported(run, application, output, missing)
    if missing:
        why = " and no gap was reported" if case.klass == "loss" else ""
        findings.append(_tuples("missing", name, f"are missing{why}", columns, missing))
    elif case.klass != "loss":
        findings += [
            Finding("idle gap", f"application {name!r} was told of a gap, but nothing is missing: {event}")
            for _, event in run.events
            if isinstance(event, Gap) and event.at == name
        ]
    if output.order == "timestamp" and not findings:
        kept = [row for row in ideal_rows if row.id in arrived]
        findings += _sequence(name, columns, kept, got)
    return findings + _delivery_times(case, name, output.stream, received)


def _multiset(name: str, columns: Sequence[str], expected: list[Row], got: list[Row]) -> list[Finding]:
    findings = []
    true = {row.id: row for row in expected}
    seen = Counter(row.id for row in got)
    if len(true) < len(expected):
        sentence = f"application {name!r}: the ideal run gives {len(expected)} tuples only {len(true)} ids"
        findings.append(Finding("ids", sentence))
    if extra := [row for row in got if row.id not in true]:
        findings.append(_tuples("extra", name, "are not in the ideal run", columns, extra))
    if twice := [row for row in {row.id: row for row in got}.values() if seen[row.id] > 1]:
        findings.append(_tuples("duplicate", name, "arrived more than once", columns, twice))
    altered = [row for row in got if row.id in true and row.content != true[row.id].content]
    if altered:
        row, ought = altered[0], true[altered[0].id]
        should = f"{_shown(columns, row)} should be {_shown(columns, ought)}"
        sentence = f"application {name!r}: {len(altered)} tuples differ from the ideal run: {should}"
        findings.append(Finding("altered", sentence))
    return findings


def _sequence(name: str, columns: Sequence[str], expected: list[Row], got: list[Row]) -> list[Finding]:
    for number, (ought, row) in enumerate(zip(expected, got, strict=True)):
        if without_sign_of_zero(ought) != without_sign_of_zero(row):
            sentence = (
                f"tuple {number} is {_shown(columns, row)}, in canonical order it is {_shown(columns, ought)}"
            )
            return [Finding("misordered", f"application {name!r} asked for timestamp order: {sentence}")]
    return []


def _unreported(run: Run, application: Subscription, output: Output, missing: list[Row]) -> list[Row]:
    """Missing tuples in no reported gap, nor beyond where the run says that the stream stands still."""
    here = (output.stream, application.name)
    gaps = [event for _, event in run.events if isinstance(event, Gap) and (event.stream, event.at) == here]
    end = run.stalled.get(application.name, END)
    return [
        row for row in missing if row.ts <= end and not any(gap.after < row.ts <= gap.until for gap in gaps)
    ]


def _delivery_times(case: Case, name: str, stream: str, received: pa.Table) -> list[Finding]:
    findings = []
    stamped, delivered = times(received, "ts"), times(received, "delivered")
    if any(later < earlier for earlier, later in pairwise(delivered)):
        findings.append(Finding("time", f"application {name!r}: delivery times decrease"))
    # a window at the end of its stream closes with the stream, before its own end
    if not _above(case, stream, _windowed):
        early = [ts for ts, at in zip(stamped, delivered, strict=True) if at < ts]
        if early:
            sentence = f"{len(early)} tuples were delivered before their timestamp, first {early[0]}"
            findings.append(Finding("time", f"application {name!r}: {sentence}"))
    return findings


def _windowed(node: Source | Operator) -> bool:
    return isinstance(node, Aggregate | TopK) or (isinstance(node, Custom) and node.window is not None)


def _above(case: Case, stream: str, what: Callable[[Source | Operator], bool]) -> bool:
    """Whether what the stream is made from, itself included, has a node of that kind."""
    above = [stream]
    for operator in reversed(case.graph.operators):
        if operator.name in above:
            above += operator.inputs
    return any(what(node) for node in (*case.graph.sources, *case.graph.operators) if node.name in above)


def _costs(case: Case, run: Run) -> list[Finding]:
    """Replicating nothing costs nothing: on a single site nothing is sent, and where no operator has to wait,
    each tuple is delivered at its timestamp."""
    if len(case.topology.sites) > 1:
        return []
    findings = []
    if run.metrics.links:
        findings.append(Finding("cost", f"a single site, yet links carried bytes: {run.metrics.links}"))
    outputs = {output.name: output for output in case.graph.outputs}
    for application in case.plan.subscriptions:
        output = outputs[application.output]
        at_once = case.klass == "calm" and output.order is None and not case.outside
        if at_once and not _above(case, output.stream, _waits):
            received = run.deliveries[application.name]
            if times(received, "ts") != times(received, "delivered"):
                sentence = f"application {application.name!r}: nothing was in the way, yet tuples took time"
                findings.append(Finding("cost", sentence))
    return findings


def _waits(node: Source | Operator) -> bool:
    late = isinstance(node, Source) and node.lateness > 0
    return late or _windowed(node) or isinstance(node, CountAggregate)


def _poison(case: Case, run: Run) -> list[Finding]:
    """What user code raises on in the ideal run is reported, and nothing else; where nothing fails, not more
    than once by a replica. (The run may end before all have come so far.)"""
    operators = [x.name for x in case.graph.operators if isinstance(x, Custom)]
    if not operators:
        return []
    findings = []
    expected = Counter(_tuple_of(event) for event in ideal_poison(case.graph, oracle_inputs(case, run)))
    told = Counter(_tuple_of(event) for _, event in run.events if isinstance(event, Poisoned))
    if unknown := told.keys() - expected.keys():
        findings.append(Finding("poison", f"no poison in the ideal run, yet reported: {min(unknown)}"))
    for poison, number in expected.items():
        most = number * len(case.plan.replicas[poison[0]])
        if (case.klass != "loss" and not told[poison]) or (case.klass == "calm" and told[poison] > most):
            sentence = f"poison {poison} is reported {told[poison]} times by at most {most} replicas"
            findings.append(Finding("poison", sentence))
    return findings


def _tuple_of(event: Poisoned) -> tuple[str, int, int, int]:
    return event.operator, event.timestamp, event.hi, event.lo


def _filters(run: Run) -> list[Finding]:
    """The ranks account for every delivery, as many are first as passed the filter, and a filter whose stream
    has ended remembers nothing."""
    findings = []
    for use in run.metrics.filters:
        if use.at in run.deliveries and use.at not in run.stalled:
            first, passed = sum(ranks[0] for ranks in use.ranks), run.deliveries[use.at].num_rows
            if first != passed:
                sentence = f"{passed} tuples passed, but its ranks count {first} as first"
                findings.append(Finding("ranks", f"stream {use.stream!r} at {use.at!r}: {sentence}"))
        for branch, ranks, received in zip(use.branches, use.ranks, use.received, strict=True):
            if sum(ranks) != received:
                sentence = (
                    f"branch from {branch!r} delivered {received} tuples, but its ranks count {sum(ranks)}"
                )
                findings.append(Finding("ranks", f"stream {use.stream!r} at {use.at!r}: {sentence}"))
        if use.live and use.at not in run.stalled and use.at in run.deliveries:
            sentence = (
                f"stream {use.stream!r} at {use.at!r} has ended, but its filter holds {use.live} tuples"
            )
            findings.append(Finding("memory", sentence))
    return findings


def _events(case: Case, run: Run) -> list[Finding]:
    """Replicas never disagree; where nothing failed no event may tell of a loss; and late tuples are counted,
    without faults exactly once for each entry point that decides about them."""
    findings = [
        Finding("disagreement", f"replicas of one stream disagree: {event}")
        for _, event in run.events
        if isinstance(event, Disagreement)
    ]
    if case.klass == "calm":
        narrow = any(link.bandwidth for link in case.topology.links)
        alarms = [
            event
            for _, event in run.events
            if isinstance(event, ALARMS) and not (narrow and isinstance(event, Degraded))
        ]
        findings += [Finding("event", f"nothing failed, yet an event says: {event}") for event in alarms]
    for source in case.graph.sources:
        late = _late_tuples(case, source)
        if source.identity == "content":
            late *= len(_unharmed(case, case.plan.entries[source.name]))
        told = [event for _, event in run.events if isinstance(event, Late) and event.source == source.name]
        counted = sum(event.tuples for event in told)
        if (case.klass == "calm" and counted != late) or (case.klass != "loss" and counted < late):
            sentence = f"source {source.name!r}: {late} tuples are late, but events tell of {counted}"
            findings.append(Finding("late", sentence))
    return findings


def _unharmed(case: Case, sites: Sequence[str]) -> list[str]:
    """Those that never crash; the reports of others may be lost with them."""
    crashed = {fault.site for fault in case.faults if isinstance(fault, Crash)}
    return [site for site in sites if site not in crashed]


def _late_tuples(case: Case, source: Source) -> int:
    table = case.inputs[source.name]
    if source.timestamps == "entry" or "arrival" not in table.column_names:
        return 0
    delays = zip(times(table, "ts"), times(table, "arrival"), strict=True)
    return sum(arrival - ts > source.lateness for ts, arrival in delays)


def _tuples(kind: str, name: str, what: str, columns: Sequence[str], found: Sequence[Row]) -> Finding:
    shown = ", ".join(_shown(columns, row) for row in found[:SHOWN])
    more = ", ..." if len(found) > SHOWN else ""
    return Finding(kind, f"application {name!r}: {len(found)} tuples {what}: {shown}{more}")


def _shown(columns: Iterable[str], row: Row) -> str:
    fields = ", ".join(f"{name}={value!r}" for name, value in zip(columns, row.values, strict=True))
    return f"(ts={row.ts}, {fields}, id={row.id[0]}:{row.id[1]})"
