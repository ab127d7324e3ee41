"""Whether a fragment goes on from its checkpoint or is computed anew from the ingress logs.

The checkpoint is Spark's own; beside it stands ``run.json``, which says what it is of. It is good if nothing
that it rests on has changed:

- the graph, the operators, the exports, and the settings that are part of the state;
- what the inputs are complete from: what a run has left out because an input was partial, it never makes up
  for, and a new gap makes windows partial that it takes for whole;
- the ingress logs, up to what has been planned: the records at the seams are still those that were read;
- the egress log: it holds every batch that the checkpoint calls committed.

Otherwise it is thrown away: the logs have everything, and what comes out a second time, the egress knows.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from anabranch.engines.spark.checkpoint import Unusable, batch_offsets, committed, planned
from anabranch.engines.spark.fragment import spark_checkpoint
from anabranch.engines.spark.run import Run, Settings
from anabranch.engines.spark.source import Offset
from anabranch.graph import Graph
from anabranch.log import names
from anabranch.log.blocking import Connection, Hole
from anabranch.log.codec import Malformed, decode
from anabranch.protocols.records import Record
from anabranch.streams.batch import with_ids
from anabranch.streams.punctuation import BEGINNING
from anabranch.types import arrow_schema

_FORMAT = 1
_ATTEMPTS = 3
"""So often a checkpoint may fail to bring the query to its next batch before it is held to be damaged."""


class Kept(msgspec.Struct, frozen=True):
    """What stands in ``run.json``. ``attempts``: starts since a batch was last committed, which was
    ``reached``."""

    format: int
    name: str
    run: Run
    salts: int
    partitions: int
    attempts: int = 0
    reached: int = -1


class Decision(msgspec.Struct, frozen=True):
    """``name`` of the run, and as what it runs: a resumed one as what it was started as."""

    name: str
    run: Run
    resumed: bool
    reason: str


def decide(run: Run, settings: Settings, connect: Callable[[], Connection]) -> Decision:
    """Leaves the checkpoint directory ready for the query to start."""
    directory = Path(run.checkpoint)
    kept = _kept(directory)
    if kept is None:
        return _fresh(run, settings, "there is no checkpoint")
    last = committed(spark_checkpoint(run))
    reason = _other(kept, run, settings) or _worn(kept, last) or _not_taken(kept, run, last)
    if reason is None:
        connection = connect()
        try:
            reason = _not_in_the_log(kept.run, run, last, connection)
        except (Unusable, Malformed) as error:
            reason = str(error)
        finally:
            connection.close()
    if reason is not None:
        return _fresh(run, settings, reason)
    attempts = kept.attempts + 1 if last == kept.reached else 1
    _write(directory, msgspec.structs.replace(kept, attempts=attempts, reached=last))
    # Windows and gaps as they were when the run began; the rest as it is now.
    same = msgspec.structs.replace(kept.run, checkpoint=run.checkpoint, taken=run.taken)
    return Decision(kept.name, same, True, f"from batch {last + 1} of its checkpoint")


def _fresh(run: Run, settings: Settings, reason: str) -> Decision:
    directory = Path(run.checkpoint)
    forget(directory)
    directory.mkdir(parents=True)
    name = secrets.token_hex(6)
    _write(directory, Kept(_FORMAT, name, run, settings.salts, settings.partitions))
    return Decision(name, run, False, reason)


def forget(directory: Path) -> None:
    """Renamed first: what is only half deleted must not be taken for a checkpoint. Who was killed meanwhile
    has left the rest."""
    if directory.exists():
        directory.rename(directory.with_name(f"{directory.name}.{secrets.token_hex(4)}.gone"))
    for away in directory.parent.glob(f"{directory.name}.*.gone"):
        shutil.rmtree(away, ignore_errors=True)


def _kept(directory: Path) -> Kept | None:
    try:
        return msgspec.json.decode((directory / "run.json").read_bytes(), type=Kept)
    except (OSError, msgspec.MsgspecError):
        return None


def _write(directory: Path, kept: Kept) -> None:
    fresh = directory / "run.json.new"
    fresh.write_bytes(msgspec.json.encode(kept))
    fresh.replace(directory / "run.json")


def _other(kept: Kept, run: Run, settings: Settings) -> str | None:
    before = kept.run
    if kept.format != _FORMAT:
        return "the checkpoint is of another version of Anabranch"
    if Graph.from_json(bytes(before.graph)) != Graph.from_json(bytes(run.graph)):
        return "the checkpoint is of another query"
    if (before.operators, before.exports) != (run.operators, run.exports):
        return f"the checkpoint is of operators {list(before.operators)} with exports {list(before.exports)}"
    if (kept.salts, kept.partitions) != (settings.salts, settings.partitions):
        return "the number of partitions or salts has changed"
    for stream, start in run.inputs.items():
        was = before.inputs.get(stream)
        if was is None or max(was.complete_from, was.high) < start.complete_from:
            return f"input {stream} has a new gap and is complete only from {start.complete_from}"
    return None


def _worn(kept: Kept, last: int) -> str | None:
    if last == kept.reached and kept.attempts >= _ATTEMPTS:
        return f"the checkpoint has failed {kept.attempts} times to get beyond batch {last}"
    return None


def _not_taken(kept: Kept, run: Run, last: int) -> str | None:
    if last < 0:
        return None
    for stream in run.exports:
        taken = run.taken.get(stream)
        if taken is None or taken.run != kept.name or taken.batch < last:
            return (
                f"the egress log of {stream} does not hold batch {last}, which the checkpoint has committed"
            )
    return None


def _not_in_the_log(before: Run, run: Run, last: int, connection: Connection) -> str | None:
    """Whether what the next batch reads, from where the last one ended, is what was to be read."""
    checkpoint = spark_checkpoint(run)
    graph = Graph.from_json(bytes(run.graph))
    if last < 0:
        for stream, begin in before.inputs.items():
            reason = _not_there(graph, Offset(stream, begin.first, BEGINNING, None), connection)
            if reason is not None:
                return reason
    for batch in {last, planned(checkpoint)} - {-1}:
        for offset in batch_offsets(checkpoint, batch).inputs.values():
            reason = _not_there(graph, offset, connection)
            if reason is not None:
                return reason
    return None


def _not_there(graph: Graph, offset: Offset, connection: Connection) -> str | None:
    stream, position = offset.stream, offset.position
    log = names.stream(graph.name, f"in/{stream}")
    try:
        first, end = connection.extent(log)
        if position > end:
            return f"the ingress log of {stream} ends at {end}, and has been read to {position}"
        if position < first:
            return f"the ingress log of {stream} begins at {first}, and has been read only to {position}"
        if offset.generation is None or (position == first and position == end):
            return None
        if position > first:
            found = _record(graph, connection, stream, position - 1).generation
        else:
            found = _record(graph, connection, stream, position).previous
    except Hole as error:
        # A log of which nothing has been read need not be there yet.
        return str(error) if position else None
    if found != offset.generation:
        return (
            f"the ingress log of {stream} has lost its end and gone on: the record before {position} "
            "is not the one that was read"
        )
    return None


def _record(graph: Graph, connection: Connection, stream: str, position: int) -> Record:
    log = names.stream(graph.name, f"in/{stream}")
    ((_, data),) = connection.read(log, position, position + 1)
    schema = with_ids(arrow_schema(graph.schema(stream)))
    return decode(data, schema, f"{log}, position {position}")
