"""The producers that an endpoint brings tuples for: clients that name themselves and number their tuples, and
one for all that do not.

A client's tuples are numbered from 0, and its promises come from its own order or from itself, never from a
clock. So whichever endpoint it turns to gives a tuple the same id and the same promise, and what it sends
again counts once. It counts its turns: of two endpoints that still bring its tuples, the one of the later
turn prevails.

Tuples without a name go by this machine's clock and are numbered here, under a name that no later life of the
endpoint uses again. A later life closes what an earlier one has left: once all entry points have told how far
it came.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets

from anabranch.graph import Source
from anabranch.plan import Plan
from anabranch.site.http.answers import Refused
from anabranch.site.http.memory import Memory, Standing
from anabranch.site.http.settings import Http
from anabranch.site.intake import Intake, Lane
from anabranch.site.journal import Journal
from anabranch.streams.punctuation import END

TURN_BITS = 20
"""Of an attempt, for the turns that an endpoint itself makes to other entry points."""
_ANONYMOUS = "http@"
_RESUME = 10.0
"""Seconds for an entry point to answer: it does not if the client has turned to another endpoint."""
_IDLE = 300.0
"""Seconds after which a client that says nothing is put aside; it comes back where it stood."""


class Clients:
    """Of one site's endpoint."""

    def __init__(self, site: str, settings: Http, intake: Intake, memory: Memory, journal: Journal) -> None:
        self._site = site
        self._settings = settings
        self._intake = intake
        self._memory = memory
        self._journal = journal
        self._life = f"{_ANONYMOUS}{site}/{secrets.token_hex(6)}"
        self._named: dict[tuple[str, str], Client] = {}
        self._nameless: dict[str, Lane] = {}
        self._starting = asyncio.Lock()
        self._working: list[asyncio.Task[None]] = []

    def start(self, sources: tuple[Source, ...], plan: Plan) -> None:
        """Closes what earlier lives have left. An entry point whose clock gives the timestamps promises only
        for producers it has heard of: it hears again of those that came here."""
        for source in sources:
            for standing in self._memory.of(source.name):
                if standing.producer.startswith(f"{_ANONYMOUS}{self._site}/"):
                    work = self._close_earlier(source, standing.producer, plan)
                elif source.timestamps == "entry":
                    work = self._resume(source, standing, plan)
                else:
                    continue
                self._working.append(asyncio.create_task(work))

    async def _resume(self, source: Source, standing: Standing, plan: Plan) -> None:
        client = self.client(source, standing.producer, plan)
        async with client.busy:
            with contextlib.suppress(TimeoutError, Refused):
                async with asyncio.timeout(_RESUME):
                    await client.at(None, standing.turn)

    async def _close_earlier(self, source: Source, name: str, plan: Plan) -> None:
        lane = self._intake.lane(source, name, self.entries(source, plan), 1 << TURN_BITS)
        known = await lane.furthest(all=True)
        assert known is not None
        lane.go_on(known.until, known.promise)
        lane.end()
        await lane.safe()
        lane.drop()
        self._memory.forget(source.name, name)
        self._journal.write("earlier life closed", source=source.name, producer=name, tuples=known.until)

    def entries(self, source: Source, plan: Plan) -> tuple[str, ...]:
        """The source's entry points, this site first. Where tuples are told apart by content each entry point
        takes them for itself."""
        entries = plan.entries[source.name]
        if source.identity == "partition":
            own = f"source {source.name!r} is read by the sites themselves; put a file where they read"
            raise Refused(409, "elsewhere", own)
        if source.identity == "content":
            if self._site not in entries:
                raise Refused(
                    409,
                    "elsewhere",
                    f"source {source.name!r} is replicated from outside and does not enter here; "
                    f"send it to each of {', '.join(entries)}",
                )
            return (self._site,)
        return tuple(sorted(entries, key=lambda entry: entry != self._site))

    async def nameless(self, source: Source, plan: Plan) -> Lane:
        async with self._starting:
            lane = self._nameless.get(source.name)
            if lane is None:
                lane = self._intake.lane(source, self._life, self.entries(source, plan), by_clock=True)
                self._memory.note(Standing(source.name, self._life))
                await lane.start()
                self._nameless[source.name] = lane
        return lane

    def client(self, source: Source, name: str, plan: Plan) -> Client:
        """A client with a name of its own."""
        key = source.name, name
        client = self._named.get(key)
        if client is None:
            self._put_aside(source.name)
            client = Client(source, name, self.entries(source, plan), self._intake, self._memory)
            self._named[key] = client
        client.used = asyncio.get_running_loop().time()
        return client

    def _put_aside(self, source: str) -> None:
        now = asyncio.get_running_loop().time()
        for key, client in list(self._named.items()):
            if now - client.used > _IDLE and not client.busy.locked():
                client.put_aside()
                del self._named[key]
        if sum(1 for name, _ in self._named if name == source) >= self._settings.producers:
            many = f"too many clients bring source {source!r}; try again later, or share a name"
            raise Refused(503, "producers", many)

    async def close(self) -> None:
        """What has no name will not go on: its stream ends, if the entry points are there to hear it."""
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)
        try:
            async with asyncio.timeout(1):
                for source, lane in self._nameless.items():
                    lane.end()
                    await lane.safe()
                    self._memory.forget(source, lane.name)
        except TimeoutError:
            self._journal.write("not closed", producer=self._life)


class Client:
    """One that names itself. While a request of it is being taken, ``busy`` is locked."""

    def __init__(
        self, source: Source, name: str, entries: tuple[str, ...], intake: Intake, memory: Memory
    ) -> None:
        self.source = source
        self.name = name
        self.busy = asyncio.Lock()
        self.used = 0.0
        self._entries = entries
        self._intake = intake
        self._memory = memory
        self._turn = 0
        self._lane: Lane | None = None

    async def at(self, first: int | None, turn: int) -> Lane:
        """The lane on which tuple ``first`` can go, or one before it that has gone already; None: wherever it
        stands."""
        if turn < self._turn:
            raise _stale(self.name, turn)
        lane = self._lane
        if lane is not None and (turn > self._turn or (lane.is_safe and first not in (None, lane.next))):
            # It has been elsewhere in the meantime, or sends again what it had sent there.
            self.put_aside()
            lane = None
        self._turn = turn
        if lane is None:
            lane = self._lane = await self._start(first)
        if first is not None and first > lane.next:
            raise Refused(
                409,
                "hole",
                f"tuple {first} of client {self.name!r} cannot be next: it is tuple {lane.next}; "
                "send from there",
                next=lane.next,
            )
        return lane

    async def _start(self, first: int | None) -> Lane:
        """Where it stands: as this endpoint remembers, or an entry point."""
        lane = self._intake.lane(self.source, self.name, self._entries, self._turn << TURN_BITS)
        try:
            known = await lane.start((self._turn + 1) << TURN_BITS)
            if known is None:
                raise _stale(self.name, self._turn)
            noted = self._memory.get(self.source.name, self.name)
            if first is not None and first > max(known.until, noted.next):
                # The entry point that has told may be the one that lacks it.
                known = await lane.furthest() or known
        except BaseException:
            lane.drop()
            raise
        lane.go_on(
            max(known.until, noted.next),
            max(known.promise, noted.promise),
            max(noted.high, known.high if known.until > noted.next else noted.high),
        )
        return lane

    def note(self) -> None:
        """All that was offered is safe."""
        lane = self._lane
        if lane is None or not lane.is_safe:
            return
        if lane.promise == END:
            self._memory.forget(self.source.name, self.name)
        else:
            standing = Standing(self.source.name, self.name, lane.next, lane.promise, lane.high, self._turn)
            self._memory.note(standing)

    def put_aside(self) -> None:
        if self._lane is not None:
            self._lane.drop()
            self._lane = None


def _stale(name: str, turn: int) -> Refused:
    made = f"client {name!r} has made a later turn than {turn}; count on at each turn to another endpoint"
    return Refused(409, "turn", made)
