"""Readers of an output that no plan knows: they read what the sites keep anyway, and hold nothing back."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable

import msgspec

from anabranch.log import names
from anabranch.log.codec import Malformed, decode
from anabranch.log.connection import FAILURES, connect
from anabranch.log.reading import extent, read_one
from anabranch.plan import Branch, Plan, Subscription
from anabranch.site.config import Deployment, Schemas
from anabranch.streams.punctuation import BEGINNING

_PATIENCE = 2.0


def carriers(plan: Plan, output: str) -> tuple[str, ...]:
    """The sites that keep the output's tuples for some application."""
    readers = {s.name for s in plan.subscriptions if s.output == output}
    return tuple(dict.fromkeys(branch.source for branch in plan.branches if branch.target in readers))


def viewing(name: str, output: str, stream: str, site: str) -> Callable[[Plan], Plan]:
    """A plan with one more application, that has a branch from each site that keeps the output."""

    def view(plan: Plan) -> Plan:
        branches = tuple(Branch(stream, carrier, name) for carrier in carriers(plan, output))
        return msgspec.structs.replace(
            plan,
            subscriptions=(*plan.subscriptions, Subscription(name, output, site)),
            branches=(*plan.branches, *branches),
        )

    return view


def new_name(site: str) -> str:
    return f"http@{site}/{secrets.token_hex(6)}"


async def latest(deployment: Deployment, stream: str, sites: tuple[str, ...]) -> int:
    """The furthest that a site which answers has promised on ``stream``."""
    asked = [asyncio.create_task(_punctuation(deployment, stream, site)) for site in sites]
    told = await asyncio.gather(*asked, return_exceptions=True)
    return max((each for each in told if isinstance(each, int)), default=BEGINNING)


async def _punctuation(deployment: Deployment, stream: str, site: str) -> int:
    try:
        async with asyncio.timeout(_PATIENCE):
            connection = await connect(deployment.access(site), "view", lambda: None)
            try:
                name = names.stream(deployment.graph.name, f"out/{stream}")
                found = await extent(connection.client, name)
                if found is None or found[0] >= found[1]:
                    return BEGINNING
                data = await read_one(connection.client, name, found[1] - 1)
            finally:
                await connection.close()
        if data is None:
            return BEGINNING
        schema = Schemas(deployment.graph).rows(stream)
        return decode(data, schema, f"out/{stream} at {site}").punctuation
    except (*FAILURES, Malformed):
        return BEGINNING
