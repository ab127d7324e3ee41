"""An entry point: where a source's tuples enter. It timestamps, identifies, punctuates, stores, and mirrors
them to its peers.

The entry points of a source are replicas of one another. What makes that exact is the producer's sequence:
each entry point holds, of every producer, all tuples up to some sequence and none behind, and a promise that
came with sequence s is honoured only where all tuples before s are. So whichever entry point a producer turns
to, tuples keep their ids, and which tuples are late is decided by the sequence, everywhere alike.

The entry point that a producer submits to is the *origin* of these tuples. With n mirrors it shows and
acknowledges them once n peers hold them. With n = 1 a peer shows them as soon as it holds them; with more, it
holds them apart, on disk, until the origin or the producer says that enough do. An origin that waits too long
goes on with the peers it has and says so (:class:`Degraded`), at once until they have caught up, but never
where the entry point's clock gives the timestamps: there two entry points that cannot hear each other would
stamp and promise against each other, so such a source waits for all its peers.
"""

from __future__ import annotations

import msgspec

from anabranch.graph import Source
from anabranch.protocols.catch_up import CatchingUp, Known, Stock, answer
from anabranch.protocols.effects import Effect, ReadLog, Report, Send, SetTimer
from anabranch.protocols.egress import Egress
from anabranch.protocols.events import Degraded, Gap, Late
from anabranch.protocols.identity import Identify
from anabranch.protocols.messages import Accepted, Ask, CatchUp, CaughtUp, Mirror, Mirrored, Resend, Submit
from anabranch.protocols.progress import Chunk, Progress, covers, end, promise_only
from anabranch.protocols.records import Record, Sequence, Writer
from anabranch.protocols.settings import Settings
from anabranch.streams.batch import Batch, timestamps
from anabranch.streams.punctuation import BEGINNING, END

PEER = "peer "
"""Before a peer's name where the consumers of a source's log are listed: a site may be both."""


class EntryPoint:
    """One source at one site."""

    def __init__(
        self,
        source: Source,
        identify: Identify,
        egress: Egress,
        slides: tuple[int, ...],
        settings: Settings,
        generation: int,
    ) -> None:
        self.source = source
        self.egress = egress
        self.at = egress.at
        self.peers: tuple[str, ...] = ()
        self.mirrors = 0
        self._identify = identify
        self._slides = slides
        self._settings = settings
        self._clocked = source.timestamps == "entry"
        self._late = Writer(f"late/{source.name}", generation)
        self._held = Writer(f"held/{source.name}", generation)
        self._producers: dict[str, Progress] = {}
        self._catching_up = CatchingUp(source.name, settings)
        self._answered: set[str] = set()
        self._lagging: set[str] = set()
        self._stamped = self._floor = BEGINNING
        self._swept = BEGINNING

    # --- starting

    def set_peers(self, peers: tuple[str, ...], mirrors: int) -> None:
        """The source's other entry points in the plan. Streams replicated from outside, and what each entry
        point reads by itself, mirror nothing."""
        self.peers = peers if self.source.identity == "sequence" else ()
        self.mirrors = len(self.peers) if self._clocked else min(mirrors, len(self.peers))

    def recover(
        self,
        now: int,
        shown: tuple[int, tuple[Record, ...]],
        held: tuple[int, tuple[Record, ...]],
        late: tuple[int, tuple[Record, ...]],
    ) -> list[Effect]:
        """The logs say how far each producer is here; the peers may know more."""
        self.egress.recover(*shown)
        self._held.recover(*held)
        self._late.recover(*late)
        for record in shown[1]:
            if record.rows is not None:
                self._identify.remember(record.rows, BEGINNING)
                self._stamped = max(self._stamped, int(timestamps(record.rows).max()))
            if record.sequence is not None:
                progress = self._progress(record.sequence.producer)
                progress.taken = progress.shown = record.sequence.until
                progress.promise = record.sequence.promise
                progress.safe = (progress.shown, progress.promise)
                progress.attempt = record.sequence.attempt
        self._floor = self.egress.writer.punctuation
        for position, record in enumerate(held[1], held[0]):
            assert record.sequence is not None
            progress = self._progress(record.sequence.producer)
            self._floor = max(self._floor, record.sequence.promise)
            if self._clocked:
                self._give_way(progress, record.sequence, record.rows)
            if record.sequence.first == progress.taken:
                chunk = Chunk(record.rows, record.sequence, own=False, now=now)
                chunk.held_at = position
                chunk.durable = True
                self._queue(progress, chunk)
        return [*self._catching_up.ask(now, self.peers, self._taken), *self._timer(now)]

    def _progress(self, producer: str) -> Progress:
        return self._producers.setdefault(producer, Progress())

    def _queue(self, progress: Progress, chunk: Chunk) -> None:
        progress.queue.append(chunk)
        progress.taken = chunk.sequence.until
        progress.attempt = max(progress.attempt, chunk.sequence.attempt)

    # --- a producer submits: this is the origin

    def on_submit(self, now: int, client: str, submit: Submit) -> list[Effect]:
        progress = self._progress(submit.producer)
        if submit.attempt < progress.attempt:
            return []
        progress.client = client
        progress.confirmed = max(progress.confirmed, submit.safe[0])
        if not self._may_stamp:
            return self._catching_up.ask(now, self.peers, self._taken)
        progress.attempt, progress.origin = submit.attempt, None
        if submit.first > progress.taken:
            return self._on_missing(now, client, submit)
        self._catching_up.over(submit.producer)
        # What the producer no longer keeps is held by enough; what it sends again is this origin's to show.
        progress.allowed = max(progress.allowed, submit.safe)
        effects = self._adopt(now, progress)
        count = 0 if submit.rows is None else submit.rows.num_rows
        skip = progress.taken - submit.first
        if skip < count or (skip == count == 0 and submit.promise > progress.promised):
            effects += self._take(now, submit, progress, skip)
        effects += self._show_ready(now, progress)
        effects += self._confirm(now, submit.producer, progress)
        if not progress.queue:
            effects.append(self._accepted(submit.producer, progress))
        return effects

    def on_ask(self, now: int, client: str, ask: Ask) -> list[Effect]:
        """One that was never heard of has brought nothing; what others have brought is confirmed first. One
        that asks at an earlier attempt hears of the last."""
        progress = self._producers.get(ask.producer)
        attempt = ask.attempt if progress is None else progress.attempt
        if (progress is None and self._may_stamp) or attempt > ask.attempt:
            high = self.egress.writer.high
            return [Send(client, Accepted(ask.source, ask.producer, 0, BEGINNING, high, attempt))]
        known = Submit(ask.source, ask.producer, 0, None, BEGINNING, BEGINNING, (0, BEGINNING), ask.attempt)
        return self.on_submit(now, client, known)

    @property
    def _may_stamp(self) -> bool:
        """Where clocks give timestamps, peers may hold what an earlier life of this entry point has stamped:
        all must have told."""
        return not self._clocked or self._answered.issuperset(self.peers)

    def _adopt(self, now: int, progress: Progress) -> list[Effect]:
        """What was taken here under another origin, or at an earlier attempt, and not shown, is now this
        origin's."""
        effects: list[Effect] = []
        if self._clocked:
            self._floor = max(self._floor, progress.promised)
            progress.forget_promises(progress.attempt)
        for chunk in progress.queue:
            inherited = not chunk.own or (self._clocked and chunk.sequence.attempt < progress.attempt)
            if inherited and not covers(progress.allowed, chunk.sequence):
                chunk.own, chunk.since = True, now
                chunk.holders.clear()
                chunk.sequence = msgspec.structs.replace(chunk.sequence, attempt=progress.attempt)
                effects += self._mirror(now, progress, chunk, self.peers)
        return effects

    def _confirm(self, now: int, producer: str, progress: Progress) -> list[Effect]:
        """What was shown here under another origin may have been lost there, and what was shown in an earlier
        life elsewhere: it is not acknowledged before peers have told that they hold it."""
        if progress.waits_to_confirm or progress.shown <= progress.confirmed:
            return []
        last = Sequence(producer, progress.shown, progress.shown, progress.promise, progress.attempt)
        chunk = Chunk(None, last, own=True, now=now, shown=True)
        progress.queue.appendleft(chunk)
        return [*self._mirror(now, progress, chunk, self.peers), *self._show_ready(now, progress)]

    def _take(self, now: int, submit: Submit, progress: Progress, skip: int) -> list[Effect]:
        effects: list[Effect] = []
        first, until = progress.taken, progress.taken
        promise = max(progress.promised, submit.promise)
        if progress.promised == BEGINNING:
            # A producer that joins others, or that the log has forgotten: what the source has promised
            # already holds for it too.
            promise = max(promise, self.egress.writer.punctuation)
        rows = None
        if submit.rows is not None:
            until += submit.rows.num_rows - skip
            stamp = None
            if self._clocked:
                self._stamped = stamp = max(now, self._stamped, promise + 1, self._floor + 1)
            rows, late = self._identify(submit.producer, first, submit.rows.slice(skip), stamp, promise)
            if late is not None:
                effects += self._set_aside(late)
        sequence = Sequence(submit.producer, first, until, promise, submit.attempt)
        return effects + self._originate(now, progress, Chunk(rows, sequence, own=True, now=now))

    def _originate(self, now: int, progress: Progress, chunk: Chunk) -> list[Effect]:
        self._queue(progress, chunk)
        return [*self._mirror(now, progress, chunk, self.peers), *self._show_ready(now, progress)]

    def _mirror(self, now: int, progress: Progress, chunk: Chunk, peers: tuple[str, ...]) -> list[Effect]:
        chunk.sent = now
        mirror = Mirror(self.source.name, chunk.rows, chunk.sequence, (progress.shown, progress.promise))
        return [Send(peer, mirror) for peer in peers if peer not in chunk.holders]

    def _set_aside(self, late: Batch) -> list[Effect]:
        ts = timestamps(late)
        event = Late(self.source.name, self.at, len(ts), int(ts.min()), int(ts.max()))
        return [self._late.append(late), Report(event)]

    def _accepted(self, producer: str, progress: Progress) -> Effect:
        assert progress.client is not None
        until, promise = progress.safe
        if until > progress.confirmed:
            until, promise = progress.confirmed, BEGINNING
        return Send(
            progress.client,
            Accepted(self.source.name, producer, until, promise, self.egress.writer.high, progress.attempt),
        )

    def _on_missing(self, now: int, client: str, submit: Submit) -> list[Effect]:
        """Earlier tuples of this producer are not here. What has not been acknowledged it sends again. What
        has, peers may hold; if no one does, it is lost."""
        progress = self._progress(submit.producer)
        acknowledged = submit.safe[0]
        if progress.taken >= acknowledged:
            return [Send(client, Resend(self.source.name, submit.producer, progress.taken))]
        if not self._catching_up.in_vain(now, submit.producer, self.peers):
            return self._catching_up.ask(now, self.peers, self._taken)
        effects = self._go_on_behind(submit.producer, acknowledged, submit.high)
        return [*effects, *self.on_submit(now, client, submit)]

    def _go_on_behind(self, producer: str, until: int, timestamp: int) -> list[Effect]:
        """The producer's sequences from here to ``until`` are nowhere to be had: this log is complete only
        from ``timestamp``."""
        self._catching_up.over(producer)
        progress = self._progress(producer)
        progress.queue.clear()
        progress.taken = progress.shown = until
        self._floor = max(self._floor, timestamp)
        # Peers may hold what follows, stamped: again all must tell first.
        self._answered.clear()
        before = self.egress.writer.punctuation
        if not self.egress.begin(timestamp):
            return []
        effects: list[Effect] = [self.egress.announce()]
        if before > BEGINNING:
            effects.append(Report(Gap(self.source.name, self.at, before, timestamp)))
        return effects

    # --- showing downstream

    def _show_ready(self, now: int, progress: Progress) -> list[Effect]:
        effects: list[Effect] = []
        while progress.queue and self._may_show(now, progress, progress.queue[0], effects):
            effects += self._show(progress, progress.queue.popleft())
        return effects

    def _may_show(self, now: int, progress: Progress, chunk: Chunk, effects: list[Effect]) -> bool:
        sequence = chunk.sequence
        if covers(progress.allowed, sequence) and not chunk.shown:
            return True
        if not chunk.own:
            return self.mirrors <= 1
        tuples = chunk.shown or sequence.until > sequence.first
        asked = self.mirrors if self._clocked or tuples else 0
        if len(chunk.holders) >= asked:
            return True
        missing = tuple(peer for peer in self.peers if peer not in chunk.holders)
        if self._clocked or self._wait_for(now, chunk, missing):
            return False
        effects.append(
            Report(Degraded(self.source.name, self.at, sequence.producer, sequence.until, missing))
        )
        return True

    def _wait_for(self, now: int, chunk: Chunk, missing: tuple[str, ...]) -> bool:
        """Peers that kept this origin waiting too long once are not waited for until they have caught up."""
        if self._lagging.issuperset(missing):
            return False
        if now - chunk.since < self._settings.mirror_patience:
            return True
        self._lagging.update(missing)
        return False

    def _show(self, progress: Progress, chunk: Chunk) -> list[Effect]:
        """Appends to the egress log: seen downstream from now on."""
        sequence = chunk.sequence
        if chunk.own:
            progress.confirmed = max(progress.confirmed, sequence.until)
        if chunk.shown:
            return [] if progress.client is None else [self._accepted(sequence.producer, progress)]
        progress.shown, progress.promise = sequence.until, sequence.promise
        if sequence.first == 0 and self.egress.complete_from == END:
            self.egress.begin(BEGINNING)
        promise = min(p.promise for p in self._producers.values())
        effects = self.egress.offer(chunk.rows, promise, sequence)
        self._identify.forget(promise)
        if chunk.own and self.mirrors > 1:
            told = Mirror(self.source.name, None, promise_only(sequence), end(sequence))
            effects += [Send(peer, told) for peer in self.peers]
        if chunk.held_at is not None:
            effects += self._held.trim_before(chunk.held_at + 1)
        return effects

    def on_durable(self, record: Record) -> list[Effect]:
        """A record of the egress log is safe: whoever waits for it is told."""
        self.egress.on_durable(record)
        sequence = record.sequence
        if sequence is None:
            return []
        progress = self._progress(sequence.producer)
        progress.safe = max(progress.safe, (sequence.until, sequence.promise))
        effects: list[Effect] = []
        if progress.client is not None:
            effects.append(self._accepted(sequence.producer, progress))
        if progress.origin is not None:
            effects.append(Send(progress.origin, self._mirrored(sequence.producer)))
        return effects

    def _mirrored(self, producer: str) -> Mirrored:
        """What this peer holds of a producer: shown or apart, and as the last origin gave it."""
        progress = self._progress(producer)
        reached = progress.safe
        for chunk in progress.queue:
            if not chunk.durable or (self._clocked and chunk.sequence.attempt != progress.attempt):
                break
            reached = max(reached, end(chunk.sequence))
        return Mirrored(self.source.name, producer, *reached, progress.attempt)

    # --- peers

    def on_mirror(self, now: int, peer: str, mirror: Mirror) -> list[Effect]:
        sequence = mirror.sequence
        progress = self._progress(sequence.producer)
        if self._clocked and sequence.attempt < progress.attempt and not covers(mirror.show, sequence):
            return []
        if sequence.attempt > progress.attempt:
            progress.attempt, progress.client = sequence.attempt, None
            if progress.waits_to_confirm:
                progress.queue.popleft()
        progress.origin = peer
        progress.peers[peer] = max(progress.peers.get(peer, (0, BEGINNING)), end(sequence))
        if sequence.first > progress.taken:
            return self._catching_up.ask(now, self.peers, self._taken)
        progress.allowed = max(progress.allowed, mirror.show)
        before = (progress.taken, progress.promised)
        effects = self._hold(now, peer, progress, mirror)
        if progress.taken > before[0]:
            self._catching_up.over(sequence.producer)
        effects += self._show_ready(now, progress)
        if before == (progress.taken, progress.promised):
            effects.append(Send(peer, self._mirrored(sequence.producer)))
        return effects

    def _hold(self, now: int, peer: str, progress: Progress, mirror: Mirror) -> list[Effect]:
        """Takes from a peer what is not here."""
        sequence = mirror.sequence
        if end(sequence) <= (progress.shown, progress.promise):
            return []
        effects: list[Effect] = []
        if self._clocked:
            self._floor = max(self._floor, sequence.promise)
            effects += self._give_way(progress, sequence, mirror.rows)
        else:
            effects += self._yield_to(sequence, progress)
        if end(sequence) <= (progress.taken, progress.promised):
            return effects
        skip = progress.taken - sequence.first
        rows = mirror.rows if skip == 0 else self._identify.beyond(mirror.rows, skip, sequence)
        rest = Sequence(sequence.producer, progress.taken, sequence.until, sequence.promise, sequence.attempt)
        chunk = Chunk(rows, rest, own=False, now=now)
        self._queue(progress, chunk)
        return effects + self._hold_apart(chunk)

    def _give_way(self, progress: Progress, sequence: Sequence, rows: Batch | None) -> list[Effect]:
        """The producer has turned to another origin, whose clock counts. What waits here with the same stamps
        is now of that origin; where stamps differ, what an earlier origin gave goes, with all behind it. None
        of that was shown anywhere: the new origin would have had to hold it."""
        effects: list[Effect] = []
        progress.forget_promises(sequence.attempt)
        for chunk in list(progress.queue):
            if chunk.sequence.attempt >= sequence.attempt or not chunk.overlaps(sequence):
                continue
            if chunk.differs(sequence, rows):
                progress.drop_from(chunk)
                break
            chunk.sequence = msgspec.structs.replace(chunk.sequence, attempt=sequence.attempt)
            if chunk.own:
                chunk.own = False
                effects += self._hold_apart(chunk)
        return effects

    def _yield_to(self, sequence: Sequence, progress: Progress) -> list[Effect]:
        """The producer has turned to another origin. What waits here and there is now of that origin."""
        effects: list[Effect] = []
        for chunk in progress.queue:
            newer = chunk.sequence.attempt < sequence.attempt
            if chunk.own and newer and covers(end(sequence), chunk.sequence):
                chunk.own = False
                effects += self._hold_apart(chunk)
        return effects

    def _hold_apart(self, chunk: Chunk) -> list[Effect]:
        if self.mirrors <= 1:
            return []
        append = self._held.append(chunk.rows, sequence=chunk.sequence)
        chunk.held_at = append.position
        return [append]

    def on_held(self, record: Record) -> list[Effect]:
        """Tuples held apart are on disk: their origin may count this peer, if they have not given way
        meanwhile."""
        assert record.sequence is not None
        progress = self._progress(record.sequence.producer)
        written = [chunk for chunk in progress.queue if chunk.is_written_as(record)]
        for chunk in written:
            chunk.durable = True
        if not written or progress.origin is None:
            return []
        return [Send(progress.origin, self._mirrored(record.sequence.producer))]

    def on_mirrored(self, now: int, peer: str, mirrored: Mirrored) -> list[Effect]:
        progress = self._progress(mirrored.producer)
        known = (mirrored.until, mirrored.promise)
        progress.peers[peer] = known
        if mirrored.until >= progress.shown:
            self._lagging.discard(peer)
        for chunk in progress.queue:
            # What it holds may be another origin's stamps, up to another promise.
            same = not self._clocked or mirrored.attempt == chunk.sequence.attempt
            if same and covers(known, chunk.sequence):
                chunk.holders.add(peer)
        return self._show_ready(now, progress)

    def on_catch_up(self, peer: str, catch_up: CatchUp) -> list[Effect]:
        """What is not in the log is noted before that is read, so that the answer has no hole between."""
        waiting = tuple(
            Mirror(self.source.name, chunk.rows, chunk.sequence, (progress.shown, progress.promise))
            for progress in self._producers.values()
            for chunk in progress.queue
        )
        stock = Stock(waiting, max(self.egress.writer.high, self.egress.complete_from), self._taken)
        tag = ("catch up", self.source.name, peer, catch_up.known, stock)
        return [ReadLog(self.egress.writer.stream, tag)]

    def answer_catch_up(
        self, peer: str, known: Known, stock: Stock, records: tuple[Record, ...]
    ) -> list[Effect]:
        limit = self._settings.message_bytes
        return [Send(peer, answer(self.source.name, known, records, stock, limit))]

    @property
    def _taken(self) -> Known:
        return tuple((name, progress.taken) for name, progress in self._producers.items())

    def on_caught_up(self, now: int, peer: str, caught_up: CaughtUp) -> list[Effect]:
        effects: list[Effect] = []
        news = False
        told = dict(caught_up.known)
        for mirror, complete_from in zip(caught_up.mirrors, caught_up.complete_from, strict=True):
            sequence = mirror.sequence
            progress = self._progress(sequence.producer)
            before_it = told.get(sequence.producer, 0)
            told[sequence.producer] = max(before_it, sequence.until)
            if sequence.first > progress.taken:
                # A hole only where the answer has one: of what it has, some may have been refused here.
                if before_it > progress.taken or complete_from == END:
                    continue
                if progress.taken > 0 and not self._is_lost(now, peer, sequence.producer):
                    continue
                # As complete as the peer.
                effects += self._go_on_behind(sequence.producer, sequence.first, complete_from)
            before = progress.taken
            effects += self.on_mirror(now, peer, mirror)
            news = news or progress.taken > before
        if not news and all(self._progress(name).taken >= taken for name, taken in caught_up.taken):
            self._catching_up.lacks(peer)
        if caught_up.more:
            return effects + (self._catching_up.ask_on(peer, self._taken) if news else [])
        return effects + self._on_answered(peer)

    def _is_lost(self, now: int, peer: str, producer: str) -> bool:
        """``peer`` has what follows behind a hole in the producer's sequence, but not what fills it."""
        self._catching_up.lacks(peer)
        return self._catching_up.in_vain(now, producer, self.peers)

    def _on_answered(self, peer: str) -> list[Effect]:
        """Once all have told, producers whose tuples could not be stamped until now are asked for them."""
        before = self._may_stamp
        self._answered.add(peer)
        if before or not self._may_stamp:
            return []
        return [
            Send(progress.client, Resend(self.source.name, producer, progress.taken))
            for producer, progress in self._producers.items()
            if progress.client is not None
        ]

    # --- time

    def trim(self, retention: int) -> list[Effect]:
        """Late tuples are kept as long as anything is."""
        return list(self._late.trim(self._late.high - retention))

    @property
    def needed_from(self) -> int:
        """Only later timestamps are needed here: what peers must keep, in case this log is lost or lags."""
        consumers = [t for c, t in self.egress.needed.items() if not c.startswith(PEER)]
        return min([self.egress.durable, *consumers])

    def on_tick(self, now: int) -> list[Effect]:
        effects = [] if self._may_stamp else self._catching_up.ask(now, self.peers, self._taken)
        sweep = now - self._swept >= self._settings.mirror_retry
        for producer, progress in self._producers.items():
            for chunk in progress.queue:
                if chunk.own and now - chunk.sent >= self._settings.mirror_retry:
                    effects += self._mirror(now, progress, chunk, self.peers)
            effects += self._show_ready(now, progress)
            if sweep:
                effects += [] if progress.queue else self._remind(producer, progress)
                progress.swept = (progress.shown, progress.promise)
        if sweep:
            self._swept = now
        return effects

    def _remind(self, producer: str, progress: Progress) -> list[Effect]:
        """A peer that missed the last words of a producer finds out by this and catches up. Not of what was
        shown since the last sweep: that may be on its way."""
        until, promise = shown = progress.swept
        last = Sequence(producer, until, until, promise, progress.attempt)
        mirror = Mirror(self.source.name, None, last, shown)
        return [Send(peer, mirror) for peer in self.peers if progress.peers.get(peer, (0, BEGINNING)) < shown]

    def _timer(self, now: int) -> list[Effect]:
        """The clock of this entry point promises at every interval, and just after every end of a window
        downstream."""
        if not self._clocked:
            return []
        periods = (self._settings.punctuation_interval, *self._slides)
        after = min(period - (now - 1) % period for period in periods)
        return [SetTimer(f"entry/{self.source.name}", after)]

    def on_timer(self, now: int) -> list[Effect]:
        effects = self._timer(now)
        if not self._may_stamp:
            return effects
        for producer, progress in self._producers.items():
            waits = progress.client is None or progress.taken < progress.confirmed
            if not waits and progress.promised < min(now - 1, END):
                sequence = Sequence(producer, progress.taken, progress.taken, now - 1, progress.attempt)
                effects += self._originate(now, progress, Chunk(None, sequence, own=True, now=now))
        return effects
