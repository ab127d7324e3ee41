"""What is said to the driver and what it says: one JSON object a line.

The driver is ``python -m anabranch.engines.spark.driver SETTINGS.json``. It reads commands on stdin, writes
events on stdout, keeps its other words for stderr, and leaves when stdin is closed. One Spark session, one
streaming query a fragment.
"""

from __future__ import annotations

from typing import Any

import msgspec

from anabranch.engines.spark.orders import Deliver, Delivered, Fetch

LOCAL, TEMPORARY = SCRATCH = ("local", "tmp")
"""Directories of a driver's own, below :attr:`Settings.directory`: of no use to the next driver."""


class Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The site's own log server, for the driver and all executors."""

    url: str
    user: str | None = None
    password: str | None = None


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one driver, from its JSON file. ``master`` is any that Spark knows; ``directory`` is for what Spark
    spills and logs, and may be lost. ``conf``: more of Spark's own settings, which win."""

    server: Server
    directory: str
    name: str = "anabranch"
    master: str = "local[1]"
    memory: str = "512m"
    partitions: int = 1
    """Shuffle partitions: the state of every operator is in so many parts. A checkpoint keeps the number it
    began with."""
    salts: int = 1
    """Into how many parts the left side of a join without ``on`` is divided; the right side goes to all."""
    batch_bytes: int = 64 << 20
    """What one batch takes in of each input, at most, unless a single record is larger."""
    join_bytes: int = 4 << 20
    """The same where there is a join: the heap holds every row of a batch until a later one has evicted it,
    and a row takes many times its bytes there."""
    along_bytes: int = 4 << 20
    """An input of which a batch takes no more than this is read beside the driver, not by a task."""
    split_bytes: int = 16 << 20
    """An input of which a batch takes more than this is read by several tasks."""
    trigger: float = 0.15
    """Seconds between the beginnings of two batches, at least, unless much waits to be read; up to three
    times as many where the machine is crowded."""
    patience: float = 1.0
    """Seconds that an idle query waits at a time for something new."""
    progress: float = 1.0
    """Seconds between reports of progress."""
    conf: dict[str, str] = {}

    def batch_bytes_of(self, joins: bool) -> int:
        return min(self.batch_bytes, self.join_bytes) if joins else self.batch_bytes


class Input(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``first``: the position of the first record that is left in the ingress log ``in/STREAM``, ``high``:
    the largest timestamp before it. ``complete_from``: what the last record of the log says."""

    first: int
    complete_from: int
    high: int = -(2**62)


class Taken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last batch of which the egress log holds everything."""

    run: str
    batch: int


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fragment to run. ``graph``: the whole query as :meth:`Graph.to_json` gives it. ``complete_from`` of
    each operator: windows that end at or before it are not emitted, they may be partial. ``taken`` has an
    entry for each export of which the egress log holds a batch. ``checkpoint``: a directory of this
    fragment's own; with a cluster all of its hosts must see it."""

    fragment: str
    graph: msgspec.Raw
    operators: tuple[str, ...]
    exports: tuple[str, ...]
    inputs: dict[str, Input]
    complete_from: dict[str, int]
    checkpoint: str
    taken: dict[str, Taken] = {}


# --- commands


class Start(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="start"):
    """Run it; what ran under the name of this fragment is stopped first. Answered by ``Started``, before
    anything is handed over, or ``Failed``, which may also follow."""

    run: Run


class Stop(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="stop"):
    """Answered by ``Stopped``, after which nothing of the fragment is handed over any more. ``forget``: its
    checkpoint goes as well."""

    fragment: str
    forget: bool = False


class Leave(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="leave"):
    """Stop everything and exit."""


Command = Start | Fetch | Deliver | Stop | Leave


# --- events


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Spark is up and takes commands. ``master`` as Spark names it."""

    master: str
    version: str
    pid: int


class Started(msgspec.Struct, frozen=True, tag="started"):
    """``resumed``: from the checkpoint. If not, the run is a new one and computes everything that the ingress
    logs hold again; ``reason`` says why. ``complete_from`` of each operator, which a resumed run keeps from
    its start."""

    fragment: str
    run: str
    resumed: bool
    reason: str
    complete_from: dict[str, int]


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The fragment does not run (any more); ``run`` is empty if it never did. Start it again or report it:
    the checkpoint decides by itself whether it is still good."""

    fragment: str
    run: str
    reason: str


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """The batches since the last report: the number of the last one, how many, their rows in and durations in
    milliseconds by Spark's names; ``dropped``: rows that Spark dropped as late, of which there must be none;
    ``state``: rows that the operators hold."""

    fragment: str
    run: str
    batch: int
    batches: int
    rows: int
    durations: dict[str, list[int]]
    dropped: int
    state: int


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    fragment: str
    run: str


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """A command that cannot be understood."""

    reason: str


Event = Ready | Started | Failed | Progress | Delivered | Stopped | Refused


def encode(message: Command | Event) -> bytes:
    """One line."""
    return msgspec.json.encode(message) + b"\n"


_commands: Any = msgspec.json.Decoder(Command)
_events: Any = msgspec.json.Decoder(Event)


def decode_command(line: bytes) -> Command:
    """Raises ``msgspec.MsgspecError``."""
    command: Command = _commands.decode(line)
    return command


def decode_event(line: bytes) -> Event:
    """Raises ``msgspec.MsgspecError``."""
    event: Event = _events.decode(line)
    return event
