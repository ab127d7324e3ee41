"""The process in which Spark runs a site's fragments: ``python -m anabranch.engines.spark.driver
SETTINGS.json``.

See :mod:`anabranch.engines.spark.run` for what it is told and what it tells.
"""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import sys
import threading
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from py4j.protocol import Py4JError

from anabranch.engines.spark import fetch
from anabranch.engines.spark.deliver import deliver
from anabranch.engines.spark.failures import reason
from anabranch.engines.spark.fragment import start_query
from anabranch.engines.spark.orders import Deliver, Delivered, Fetch
from anabranch.engines.spark.planners import Planners
from anabranch.engines.spark.resume import Decision, decide, forget
from anabranch.engines.spark.run import (
    Event,
    Failed,
    Leave,
    Progress,
    Ready,
    Refused,
    Settings,
    Start,
    Started,
    Stop,
    Stopped,
    decode_command,
    encode,
)
from anabranch.engines.spark.session import session
from anabranch.log.blocking import Connection

_LEAVING = 5.0


class _Running:
    """A query under way, and a thread that waits for its end."""

    def __init__(
        self, decision: Decision | fetch.Fetching, query: Any, ended: queue.SimpleQueue[Any]
    ) -> None:
        self.decision = decision
        self.query = query
        self.seen = -1
        self._ended = ended
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        error: Exception | None = None
        try:
            self.query.awaitTermination()
        except Exception as raised:
            error = raised
        self._ended.put((self, error))

    def progress(self) -> Progress | None:
        """What has happened since this was last asked."""
        reports = [
            msgspec.json.decode(each.json(), type=_Report)
            for each in self.query._jsq.recentProgress()
            if each.batchId() > self.seen
        ]
        reports = [report for report in reports if report.durationMs.get("addBatch") is not None]
        if not reports:
            return None
        self.seen = reports[-1].batchId
        states = [state for report in reports for state in report.stateOperators]
        return Progress(
            self.decision.run.fragment,
            self.decision.name,
            self.seen,
            len(reports),
            sum(report.numInputRows for report in reports),
            {name: [r.durationMs.get(name, 0) for r in reports] for name in reports[-1].durationMs},
            sum(state.numRowsDroppedByWatermark for state in states),
            sum(state.numRowsTotal for state in reports[-1].stateOperators),
        )


class _State(msgspec.Struct):
    numRowsTotal: int = 0
    numRowsDroppedByWatermark: int = 0


class _Report(msgspec.Struct):
    batchId: int
    numInputRows: int = 0
    durationMs: dict[str, int] = {}
    stateOperators: list[_State] = []


class Driver:
    """One thread does everything; others only wait, for lines and for the ends of queries."""

    def __init__(self, settings: Settings, commands: BinaryIO, events: BinaryIO) -> None:
        self._settings = settings
        self._commands = commands
        self._events = events
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._running: dict[str, _Running] = {}
        self._life = secrets.token_hex(4)
        self._spark: Any = None
        self._planners: Any = None

    def run(self) -> None:
        """Until it is told to leave or nobody is there to tell it anything."""
        threading.Thread(target=self._listen, daemon=True).start()
        self._spark = session(self._settings)
        self._planners = Planners(self._spark)
        context = self._spark.sparkContext
        self._tell(Ready(context.master, self._spark.version, os.getpid()))
        while True:
            try:
                item = self._inbox.get(timeout=self._settings.progress)
            except queue.Empty:
                self._report()
                continue
            if item is None or isinstance(item, Leave):
                break
            self._handle(item)
        for fragment in list(self._running):
            self._stop(fragment)
        self._spark.stop()

    def _listen(self) -> None:
        for line in self._commands:
            try:
                self._inbox.put(decode_command(line))
            except msgspec.MsgspecError as error:
                self._inbox.put(Refused(f"this is no command: {error}"))
        self._inbox.put(None)
        # Whoever started this process is gone, and the driver that comes next waits for this one to end: it
        # must not stay, whatever Spark is busy with.
        threading.Timer(_LEAVING, os._exit, (1,)).start()

    def _tell(self, event: Event) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._events.write(encode(event))
            self._events.flush()

    def _handle(self, item: Any) -> None:
        match item:
            case Refused():
                self._tell(item)
            case Start(run):
                self._stop(run.fragment)
                self._start(item)
            case Fetch():
                self._stop(item.fragment)
                self._fetch(item)
            case Deliver():
                threading.Thread(target=self._deliver, args=(item,), daemon=True).start()
            case Delivered() | Failed():
                self._tell(item)
            case Stop(fragment, forgotten):
                running = self._stop(fragment)
                if forgotten and running is not None:
                    forget(Path(running.decision.run.checkpoint))
                self._tell(Stopped(fragment, running.decision.name if running else ""))
            case (_Running() as running, error):
                self._ended(running, error)

    def _start(self, command: Start) -> None:
        fragment = command.run.fragment
        server = self._settings.server
        decision = None
        try:
            decision = decide(
                command.run, self._settings, lambda: Connection(server.url, server.user, server.password)
            )
            # First, so that the agent knows the run before anything of it comes.
            self._tell(
                Started(
                    fragment, decision.name, decision.resumed, decision.reason, decision.run.complete_from
                )
            )
            self._planners.need()
            query = start_query(self._spark, decision.run, decision.name, self._life, self._settings)
        except Exception as error:
            self._tell(Failed(fragment, decision.name if decision else "", reason(error)))
            return
        self._running[fragment] = _Running(decision, query, self._inbox)

    def _fetch(self, order: Fetch) -> None:
        fetching = None
        try:
            fetching = fetch.decide(order)
            self._tell(Started(order.fragment, fetching.name, fetching.resumed, fetching.reason, {}))
            query = fetch.start_fetch(self._spark, fetching, self._life, self._settings)
        except Exception as error:
            self._tell(Failed(order.fragment, fetching.name if fetching else "", reason(error)))
            return
        self._running[order.fragment] = _Running(fetching, query, self._inbox)

    def _deliver(self, order: Deliver) -> None:
        """In a thread of its own, for it may take long; what comes of it is told by the one thread."""
        try:
            deliver(self._spark, order)
        except Exception as error:
            self._inbox.put(Failed(order.fragment, str(order.batch), reason(error)))
        else:
            self._inbox.put(Delivered(order.fragment, order.batch))

    def _stop(self, fragment: str) -> _Running | None:
        running = self._running.pop(fragment, None)
        if running is not None:
            running.query.stop()
        return running

    def _ended(self, running: _Running, error: Exception | None) -> None:
        """Unless it was asked to."""
        fragment = running.decision.run.fragment
        if self._running.get(fragment) is running:
            del self._running[fragment]
            why = "the query ended by itself" if error is None else reason(error)
            self._tell(Failed(fragment, running.decision.name, why))

    def _report(self) -> None:
        for running in list(self._running.values()):
            with contextlib.suppress(Py4JError):
                progress = running.progress()
                if progress is not None:
                    self._tell(progress)
        if self._planners.needed and all(running.seen >= 0 for running in self._running.values()):
            self._planners.dismiss()


def main() -> None:
    settings = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Settings)
    # Spark and its children write to stdout as they please: what they take for it goes to stderr.
    events = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    Driver(settings, sys.stdin.buffer, events).run()


if __name__ == "__main__":
    main()
