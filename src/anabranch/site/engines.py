"""Fragments whose engine is the site's Spark driver: started and stopped as the protocols ask, and what it
hands over brought to them, batch by batch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pyarrow as pa

from anabranch.engines.spark import run as driver
from anabranch.log import handover
from anabranch.log.codec import Malformed
from anabranch.protocols.agent import Agent
from anabranch.protocols.effects import Answer, StartEngine, StopEngine
from anabranch.protocols.events import Poisoned
from anabranch.protocols.outside import Computed
from anabranch.site.ages import age
from anabranch.site.backoff import Backoff
from anabranch.site.config import SiteConfig
from anabranch.site.journal import Journal
from anabranch.streams.batch import Batch, concat

MOST_STAGED = 1 << 30
"""Bytes of batches that are not done yet, of all fragments."""

Batches = tuple[str, str, int]
"""Fragment, run and number."""


class _Staged:
    """What has come of a batch: by task, its pieces by number."""

    def __init__(self) -> None:
        self.pieces: dict[str, dict[int, tuple[str, Batch]]] = {}
        self.bytes = 0


class Engines:
    """Of one life of the agent. ``say`` speaks to the driver, ``answer`` to whoever waits for a reply;
    ``step`` takes a step of the agent's and carries out what it asks for."""

    def __init__(
        self,
        config: SiteConfig,
        schema_of: Callable[[str], pa.Schema | None],
        agent: Agent,
        clock: Callable[[], int],
        step: Callable[..., None],
        say: Callable[[driver.Command], None],
        answer: Callable[[str, bytes], None],
        journal: Journal,
    ) -> None:
        self._graph = msgspec.Raw(config.graph.to_json())
        self._site = config.site
        spark = config.spark
        own = str(config.directory / "checkpoints") if spark is None else spark.checkpoints
        self._checkpoints = own or str(config.directory / "checkpoints")
        self._schema_of = schema_of
        self._agent = agent
        self._clock = clock
        self._step = step
        self._say = say
        self._answer = answer
        self._journal = journal
        self._wanted: dict[str, driver.Run] = {}
        self.runs: dict[str, str] = {}
        """The run that each fragment's engine is in."""
        self._handed: dict[str, tuple[str, int]] = {}
        """The last batch of each that the protocols have been given."""
        self._staged: dict[Batches, _Staged] = {}
        self._waiting: dict[Batches, list[str]] = {}
        self._early: dict[str, list[tuple[handover.Handover, str]]] = {}
        """What came before the driver had said that its run has started."""
        self._backoffs: dict[str, Backoff] = {}
        self._pauses: set[asyncio.TimerHandle] = set()
        self.progress: dict[str, driver.Progress] = {}

    def close(self) -> None:
        for pause in self._pauses:
            pause.cancel()
        for fragment in self._wanted:
            self._say(driver.Stop(fragment))
        self._wanted.clear()

    # --- what the protocols ask for

    def start(self, effect: StartEngine) -> None:
        start = effect.start
        run = driver.Run(
            fragment=start.fragment,
            graph=self._graph,
            operators=start.operators,
            exports=start.exports,
            inputs={
                stream: driver.Input(first=at.position, complete_from=at.declared, high=at.complete_from)
                for stream, at in start.inputs.items()
            },
            complete_from=start.complete_from,
            checkpoint=f"{self._checkpoints}/{start.fragment}",
            taken={export: driver.Taken(*taken) for export, taken in start.taken.items()},
        )
        self._wanted[start.fragment] = run
        self._say(driver.Start(run))

    def stop(self, effect: StopEngine) -> None:
        self._forget(effect.fragment)
        self._say(driver.Stop(effect.fragment, forget=True))

    def answer(self, effect: Answer) -> None:
        batch = (effect.fragment, effect.run, effect.batch)
        text = handover.OK
        if not effect.taken:
            text = f"batch {effect.batch} of run {effect.run} is not the next one here".encode()
        for reply in self._waiting.pop(batch, ()):
            self._answer(reply, text)

    def _forget(self, fragment: str) -> None:
        self._wanted.pop(fragment, None)
        self.runs.pop(fragment, None)
        self._handed.pop(fragment, None)
        self._early.pop(fragment, None)
        self.progress.pop(fragment, None)
        self._staged = {batch: staged for batch, staged in self._staged.items() if batch[0] != fragment}
        self._waiting = {batch: waits for batch, waits in self._waiting.items() if batch[0] != fragment}

    # --- what the driver says

    def on_event(self, event: driver.Event) -> None:
        match event:
            case driver.Ready():
                self._journal.write("driver ready", master=event.master, version=event.version)
                for run in self._wanted.values():
                    self._say(driver.Start(run))
            case driver.Started():
                self._on_started(event)
            case driver.Failed():
                if event.fragment in self._wanted:
                    self._on_failed(event.fragment, event.reason)
            case driver.Progress():
                self._on_progress(event)
            case driver.Refused():
                self._journal.write("driver refused", why=event.reason)

    def _on_started(self, event: driver.Started) -> None:
        if event.fragment not in self._wanted:
            return
        self._journal.write(
            "engine started",
            fragment=event.fragment,
            run=event.run,
            resumed=event.resumed,
            why=event.reason,
        )
        self.runs[event.fragment] = event.run
        self._step(self._agent.on_engine_started, self._clock(), event.fragment, event.run)
        for message, reply in self._early.pop(event.fragment, ()):
            self._take(message, reply)

    def _on_failed(self, fragment: str, reason: str) -> None:
        """The fragment begins again, after a pause that grows."""
        self._journal.count("engines_failed", fragment=fragment)
        self._journal.write("engine failed", fragment=fragment, why=reason)
        self._forget(fragment)
        wait = self._backoffs.setdefault(fragment, Backoff(0.1, 10.0)).pause()

        def again() -> None:
            self._pauses.discard(pause)
            self._step(self._agent.on_engine_failed, self._clock(), fragment)

        pause = asyncio.get_running_loop().call_later(wait, again)
        self._pauses.add(pause)

    def _on_progress(self, event: driver.Progress) -> None:
        self._backoffs.pop(event.fragment, None)
        self.progress[event.fragment] = event
        self._journal.count("engine_batches", event.batches, fragment=event.fragment)
        self._journal.count("engine_rows", event.rows, fragment=event.fragment)
        self._journal.write(
            "engine progress",
            fragment=event.fragment,
            batch=event.batch,
            batches=event.batches,
            rows=event.rows,
            milliseconds=event.durations,
            state=event.state,
        )
        if event.dropped:
            self._journal.count("engine_rows_dropped", event.dropped, fragment=event.fragment)
            self._journal.write("engine dropped rows", fragment=event.fragment, rows=event.dropped)

    def on_gone(self) -> None:
        """The driver has ended, and all engines with it."""
        for fragment in list(self._wanted):
            self._on_failed(fragment, "the Spark driver has ended")

    # --- what an engine hands over

    def on_handover(self, data: bytes, reply: str) -> None:
        try:
            message = handover.decode(data)
        except Malformed as error:
            self._refuse(reply, error)
            return
        if message.fragment in self._wanted and message.fragment not in self.runs:
            self._early.setdefault(message.fragment, []).append((message, reply))
        else:
            self._take(message, reply)

    def _take(self, message: handover.Handover, reply: str) -> None:
        try:
            if self.runs.get(message.fragment) != message.run:
                raise Malformed(f"run {message.run} of {message.fragment} is not the one that runs here")
            match message:
                case handover.Piece():
                    self._stage(message)
                    self._answer(reply, handover.OK)
                case handover.Poison():
                    event = Poisoned(
                        message.operator, self._site, message.ts, message.hi, message.lo, message.error
                    )
                    self._journal.event(event)
                    self._answer(reply, handover.OK)
                case handover.Done():
                    self._on_done(message, reply)
        except Malformed as error:
            self._refuse(reply, error)

    def _refuse(self, reply: str, error: Malformed) -> None:
        self._journal.count("handovers_refused")
        self._answer(reply, str(error).encode())

    def _stage(self, piece: handover.Piece) -> None:
        schema = self._schema_of(piece.stream)
        if schema is None:
            raise Malformed(f"{piece.fragment}: there is no stream {piece.stream[:80]!r} in this query")
        if sum(staged.bytes for staged in self._staged.values()) + len(piece.rows) > MOST_STAGED:
            raise Malformed(
                f"{piece.fragment}: a batch of more than {MOST_STAGED >> 20} MiB; make batches smaller"
            )
        rows = handover.rows_of(piece, schema)
        self._journal.count("engine_out_rows", rows.num_rows, stream=piece.stream)
        self._journal.count("engine_out_age_us", age(rows, self._clock()), stream=piece.stream)
        staged = self._staged.setdefault((piece.fragment, piece.run, piece.batch), _Staged())
        staged.pieces.setdefault(piece.task, {})[piece.number] = (piece.stream, rows)
        staged.bytes += len(piece.rows)

    def _on_done(self, done: handover.Done, reply: str) -> None:
        batch = (done.fragment, done.run, done.batch)
        handed = self._handed.get(done.fragment)
        rows: dict[str, list[Batch]] = {}
        if handed is None or handed[0] != done.run or done.batch > handed[1]:
            rows = self._rows_of(done)
            self._handed[done.fragment] = (done.run, done.batch)
        for old in [b for b in self._staged if b[0] == done.fragment and b[2] <= done.batch]:
            del self._staged[old]
        self._waiting.setdefault(batch, []).append(reply)
        computed = Computed(
            done.fragment,
            done.run,
            done.batch,
            {stream: concat(batches) for stream, batches in rows.items()},
            done.punctuation,
            done.positions,
        )
        self._step(self._agent.on_computed, self._clock(), computed)

    def _rows_of(self, done: handover.Done) -> dict[str, list[Batch]]:
        """All pieces that count, in the order of their tasks."""
        staged = self._staged.get((done.fragment, done.run, done.batch), _Staged())
        rows: dict[str, list[Batch]] = {}
        for task, count in sorted(done.pieces.items()):
            pieces = staged.pieces.get(task, {})
            for number in range(count):
                if number not in pieces:
                    raise Malformed(f"piece {number} of task {task} of batch {done.batch} has not come")
                stream, batch = pieces[number]
                rows.setdefault(stream, []).append(batch)
        return rows
