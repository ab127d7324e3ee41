"""What a protocol asks its runtime to do, as data. The live runtime does it with NATS and Spark, the
simulator with a queue of events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from anabranch.streams.batch import Batch

if TYPE_CHECKING:
    from anabranch.protocols.events import Event
    from anabranch.protocols.messages import Message
    from anabranch.protocols.records import Record


class Send(msgspec.Struct, frozen=True):
    """A message to another node; it may be lost."""

    to: str
    message: Message


class Append(msgspec.Struct, frozen=True):
    """A record at the end of a stream of this site's log. Answered by ``Appended`` once it is durable;
    appends of one stream complete in order. A crash before the answer may or may not keep it."""

    stream: str
    position: int
    record: Record


class Trim(msgspec.Struct, frozen=True):
    """Records before position ``keep`` may go."""

    stream: str
    keep: int


class Drop(msgspec.Struct, frozen=True):
    """The stream is no longer wanted on this site: it goes, with all its records."""

    stream: str


class ReadLog(msgspec.Struct, frozen=True):
    """All retained records of a stream of this site's log. Answered by ``LogRead`` with the same ``tag``."""

    stream: str
    tag: Any = None


class OpenBranch(msgspec.Struct, frozen=True):
    """A connection of its own to site ``source`` that carries ``stream`` from ``position`` on, if the record
    before it is of ``generation`` (nothing was lost there meanwhile); otherwise from where it is complete
    from ``complete_from``. Answered by ``BranchOpened``, then ``BranchRecord`` in order. Opening again
    replaces it."""

    stream: str
    source: str
    position: int | None
    generation: int
    complete_from: int


class CloseBranch(msgspec.Struct, frozen=True):
    stream: str
    source: str


class SetTimer(msgspec.Struct, frozen=True):
    """``Timer(key)`` after ``after`` microseconds."""

    key: str
    after: int


class Report(msgspec.Struct, frozen=True):
    """An event that must not pass in silence."""

    event: Event


class Deliver(msgspec.Struct, frozen=True):
    """Tuples for the application, each once."""

    rows: Batch


class EngineInput(msgspec.Struct, frozen=True):
    """The first position of an ingress log, what it is complete from there, and what the log itself says of
    that: less, where records were trimmed."""

    position: int
    complete_from: int
    declared: int


class EngineStart(msgspec.Struct, frozen=True):
    """What an engine that is a process of its own must know to begin a run, or to resume its last one.
    ``complete_from``: of each operator; no window that ends there or earlier may be emitted. ``taken``: the
    last run and batch that the egress log of each export holds."""

    fragment: str
    operators: tuple[str, ...]
    exports: tuple[str, ...]
    inputs: dict[str, EngineInput]
    complete_from: dict[str, int]
    taken: dict[str, tuple[str, int]]


class StartEngine(msgspec.Struct, frozen=True):
    """An engine of its own for a fragment. The agent is told of the run it begins or resumes, then of what it
    has computed, batch by batch; and when it is gone."""

    start: EngineStart


class StopEngine(msgspec.Struct, frozen=True):
    fragment: str


class Answer(msgspec.Struct, frozen=True):
    """To an engine: the batch is safe in the egress logs (``taken``), or refused."""

    fragment: str
    run: str
    batch: int
    taken: bool


Effect = (
    Send
    | Append
    | Trim
    | Drop
    | ReadLog
    | OpenBranch
    | CloseBranch
    | SetTimer
    | Report
    | Deliver
    | StartEngine
    | StopEngine
    | Answer
)
