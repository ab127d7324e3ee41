"""A producer: the client that brings a source's tuples to its entry points, in sequence, and keeps them until
they are safe.

It turns to the next entry point when the present one does not acknowledge in time, and sends again what is
not safe: entry points recognise sequences, so nothing is lost and nothing counts twice.
"""

from __future__ import annotations

from collections import deque

import msgspec

from anabranch.graph import Source
from anabranch.protocols.effects import Effect, Send, SetTimer
from anabranch.protocols.messages import Accepted, Ask, Resend, Submit
from anabranch.protocols.settings import Settings
from anabranch.streams.batch import Batch, Ints, ints
from anabranch.streams.punctuation import BEGINNING, END

STILL = 10
"""How often in an interval a producer looks whether time that stood still goes on."""


class Producer:
    """One producer of ``source``. Where the source gives timestamps, it promises by its own clock, an
    interval and every end of a window long: no tuple comes later than the source's lateness allows.

    ``told``: it promises nothing but what it is told. ``attempt``: turns to other entry points that were made
    in its name before."""

    def __init__(
        self,
        source: Source,
        name: str,
        entries: tuple[str, ...],
        slides: tuple[int, ...],
        settings: Settings,
        attempt: int = 0,
        told: bool = False,
    ) -> None:
        self.source = source
        self.name = name
        self._entries = entries
        self._current = 0
        self._attempt = attempt
        self._told = told
        self._slides = slides
        self._settings = settings
        self._outbox: deque[Submit] = deque()
        self._next = 0
        self._high = BEGINNING
        self._promise = BEGINNING
        self._safe = (0, BEGINNING)
        self._progress = self._resent = BEGINNING
        self.closed = False

    @property
    def done(self) -> bool:
        return self.closed and not self._outbox

    def start(self, now: int) -> list[Effect]:
        self._progress = now
        # An entry point whose clock gives the timestamps promises only for producers it has heard of.
        return [self.hello(), *self._watch(), *self._schedule(now)]

    def hello(self) -> Effect:
        """Brings nothing; the entry point tells how far it holds this producer's tuples."""
        if self._told:
            ask = Ask(self.source.name, self.name, self._attempt)
            return Send(self._entries[self._current], ask)
        return Send(self._entries[self._current], self._submit(None, BEGINNING))

    @property
    def attempt(self) -> int:
        return self._attempt

    def take_up(self, attempt: int) -> list[Effect]:
        """An entry point has heard of a later attempt in this name than it was begun with: it goes on from
        there."""
        self._attempt = attempt
        return [self.hello()]

    @property
    def next(self) -> int:
        """The number of the next tuple."""
        return self._next

    @property
    def promise(self) -> int:
        return self._promise

    @property
    def high(self) -> int:
        """The largest timestamp so far."""
        return self._high

    def go_on(self, first: int, promise: int, high: int) -> None:
        """The tuples before ``first``, none with a timestamp larger than ``high``, are safe, and with them
        ``promise``: an earlier life of this producer has brought them. To be said before anything is
        offered."""
        self._next = first
        self._high = max(self._high, high)
        self._safe = max(self._safe, (first, BEGINNING))
        self._promise = max(self._promise, promise)

    def offer(
        self, now: int, rows: Batch, arrived: int | None = None, promise: int = BEGINNING
    ) -> list[Effect]:
        """Tuples that arrive now: ``ts`` first, if the source gives it. ``arrived``: when they came, if that
        is not ``now``; what comes of them later than the lateness allows is late. Or what is at or behind
        ``promise``, where that is told."""
        promise = max(promise, self._now_promised(now if arrived is None else arrived))
        submit = self._submit(rows, promise)
        self._next += rows.num_rows
        if self.source.timestamps == "source":
            ts: Ints = ints(rows.column(0))
            self._high = max(self._high, int(ts.max()))
        return self._keep(now, submit)

    def tell(self, now: int, promise: int) -> list[Effect]:
        """No later tuple will have a timestamp <= ``promise``."""
        return self._keep(now, self._submit(None, max(promise, self._promise)))

    def close(self, now: int) -> list[Effect]:
        """No more tuples, ever."""
        self.closed = True
        return self._keep(now, self._submit(None, END))

    @property
    def is_safe(self) -> bool:
        """All that was offered or promised is."""
        return not self._outbox

    @property
    def unsafe(self) -> int:
        """Bytes of tuples that are not known to be safe."""
        return sum(int(submit.rows.nbytes) for submit in self._outbox if submit.rows is not None)

    def _now_promised(self, now: int) -> int:
        if self.source.timestamps == "entry":
            return BEGINNING
        if self._told:
            return self._promise
        return max(self._promise, now - self.source.lateness - 1)

    def _submit(self, rows: Batch | None, promise: int) -> Submit:
        self._promise = max(self._promise, promise)
        return Submit(
            self.source.name, self.name, self._next, rows, promise, self._high, self._safe, self._attempt
        )

    def _keep(self, now: int, submit: Submit) -> list[Effect]:
        if not self._outbox:
            self._progress = now
        elif submit.rows is None and self._outbox[-1].rows is None:
            # A later promise stands for an earlier one.
            self._outbox.pop()
        self._outbox.append(submit)
        return [Send(self._entries[self._current], submit)]

    def on_accepted(self, now: int, accepted: Accepted) -> None:
        if not self._told or self.source.timestamps == "entry":
            self._high = max(self._high, accepted.high)
        # What is offered may be safe already: an earlier life of this producer has brought it, too.
        self._safe = max(self._safe, (accepted.until, accepted.promise))
        while self._outbox and self._is_safe(self._outbox[0]):
            # Only this is progress: the promises of an entry point's clock go on while it misses tuples.
            self._progress = now
            self._outbox.popleft()

    def _is_safe(self, submit: Submit) -> bool:
        until = submit.first + (0 if submit.rows is None else submit.rows.num_rows)
        return until < self._safe[0] or (
            until == self._safe[0] and (until > submit.first or submit.promise <= self._safe[1])
        )

    def on_timer(self, now: int, key: str, arrived: int | None = None) -> list[Effect]:
        """``arrived``: up to when tuples have come, if that is not ``now``."""
        if key == "watch":
            return [*self._turn(now), *([] if self.done else self._watch())]
        if self.closed:
            return []
        arrived = now if arrived is None else arrived
        promise = self._now_promised(arrived)
        if promise == self._promise:
            # The tuples' time stands still, as in a replay that waits for room: the end of a period may be a
            # microsecond away for as long as that lasts.
            return [SetTimer("promise", self._settings.punctuation_interval // STILL)]
        return [*self._keep(now, self._submit(None, promise)), *self._schedule(arrived)]

    def _watch(self) -> list[Effect]:
        return [SetTimer("watch", self._settings.producer_timeout // 2)]

    def on_resend(self, now: int, sender: str, resend: Resend) -> list[Effect]:
        """The present entry point lost some of what it was sent: it gets all that is not safe again, though
        not faster than it can ask."""
        if (
            sender != self._entries[self._current]
            or now - self._resent < self._settings.producer_timeout // 4
        ):
            return []
        return self._send_again(now)

    def _turn(self, now: int) -> list[Effect]:
        """To the next entry point, with all that is not safe, if this one has not acknowledged anything for
        long."""
        if not self._outbox or now - self._progress < self._settings.producer_timeout:
            return []
        self._progress = now
        self._current = (self._current + 1) % len(self._entries)
        self._attempt += 1
        return self._send_again(now)

    def _send_again(self, now: int) -> list[Effect]:
        self._resent = now
        self._outbox = deque(
            msgspec.structs.replace(submit, safe=self._safe, attempt=self._attempt) for submit in self._outbox
        )
        return [Send(self._entries[self._current], submit) for submit in self._outbox]

    def _schedule(self, now: int) -> list[Effect]:
        """The next promise is due at the interval, or when it covers the next end of a window downstream."""
        if self._told or self.source.timestamps == "entry":
            return []
        promised = now - self.source.lateness - 1
        periods = (self._settings.punctuation_interval, *self._slides)
        return [SetTimer("promise", min(period - promised % period for period in periods))]
