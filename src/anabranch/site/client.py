"""What producers and applications have in common: a name, lines to sites, and an executor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from nats.aio.msg import Msg

from anabranch.log import names
from anabranch.log.codec import Malformed
from anabranch.protocols.effects import Send
from anabranch.protocols.messages import Message
from anabranch.site import wire
from anabranch.site.config import Deployment
from anabranch.site.executor import Executor, Table
from anabranch.site.journal import Journal
from anabranch.site.post import Hear, Line


class ClientFailed(RuntimeError):
    """The client cannot go on: the sentence says why."""


class Client:
    """``hear`` is given what sites say to it."""

    def __init__(
        self,
        deployment: Deployment,
        name: str,
        table: Table,
        hear: Callable[[str, Message], None],
        journal: Journal,
    ) -> None:
        self.deployment = deployment
        self.name = name
        self.journal = journal
        self.failure: BaseException | None = None
        self.failed = asyncio.Event()
        self.executor = Executor({Send: self.send, **table}, self.fail)
        self._hear = hear
        self._lines: dict[str, Line] = {}

    def talk_to(self, sites: Iterable[str]) -> None:
        """Opens the lines that are not there yet."""
        subject = names.client(self.deployment.graph.name, self.name)
        for site in sites:
            if site not in self._lines:
                hears: dict[str, Hear] = {subject: self._on_message}
                self._lines[site] = Line(site, self.name, self.deployment.access, hears, self.journal)

    def send(self, effect: Send) -> None:
        line = self._lines.get(effect.to)
        if line is not None:
            subject = names.inbox(self.deployment.graph.name, effect.to, self.name)
            line.send(subject, wire.encode(self.name, effect.message))

    async def _on_message(self, received: Msg) -> None:
        try:
            sender, message = wire.decode(received.data)
        except Malformed as error:
            self.journal.count("malformed")
            self.journal.write("Rejected", reason=str(error))
            return
        self._hear(sender, message)

    def fail(self, error: BaseException) -> None:
        self.failure = error
        self.failed.set()

    def check(self) -> None:
        if self.failure is not None:
            raise ClientFailed(f"{self.name}: {self.failure!r}") from self.failure

    async def close(self) -> None:
        self.executor.end()
        await asyncio.gather(*(line.close() for line in self._lines.values()))
