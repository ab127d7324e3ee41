"""Handing over to the site's agent, from processes of its engine: see :mod:`anabranch.log.handover`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from anabranch.log.blocking import Server
from anabranch.log.handover import OK, Handover, encode

PATIENCE = 120.0
"""Seconds in which the agent must take what is handed over; then the query fails and comes again."""


def hand_over(server: Server, subject: str, messages: Iterable[Handover]) -> int:
    """Returns how many they were, when the agent has taken all. Each again and again while there is nobody to
    take it: a repetition costs nothing."""
    count = 0

    def encoded() -> Iterator[bytes]:
        nonlocal count
        for message in messages:
            count += 1
            yield encode(message)

    for answer in server.request_all(subject, encoded(), PATIENCE):
        if answer != OK:
            raise OSError(f"the agent does not take it: {answer.decode('utf-8', 'replace')}")
    return count
