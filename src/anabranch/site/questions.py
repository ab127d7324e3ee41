"""What is asked of a site from outside, and the plan that is offered to it by hand."""

from __future__ import annotations

import msgspec

from anabranch.log import names
from anabranch.log.connection import Access, connect
from anabranch.plan import Plan
from anabranch.protocols.messages import PlanOffer
from anabranch.site import wire
from anabranch.site.status import SiteStatus

PLAN = b"plan"
"""Asked of a site's status: the plan it follows."""
_PATIENCE = 3.0


async def status_at(access: Access, query: str, site: str) -> SiteStatus:
    """Raises one of :data:`anabranch.log.connection.FAILURES` if the site does not answer."""
    return msgspec.json.decode(await _ask(access, query, site, b""), type=SiteStatus)


async def plan_at(access: Access, query: str, site: str) -> Plan:
    """Raises as :func:`status_at` does, also from a site that has no plan yet."""
    return Plan.from_json(await _ask(access, query, site, PLAN))


async def offer(access: Access, query: str, site: str, plan: Plan) -> None:
    """Tells the site of the plan; whether it takes it is seen in its status."""
    connection = await connect(access, "plan", lambda: None)
    try:
        subject = names.inbox(query, site, names.OPERATOR)
        await connection.client.publish(subject, wire.encode(names.OPERATOR, PlanOffer(plan)))
        await connection.client.flush(timeout=5)
    finally:
        await connection.close()


async def _ask(access: Access, query: str, site: str, question: bytes) -> bytes:
    connection = await connect(access, "status", lambda: None)
    try:
        reply = await connection.client.request(names.status(query, site), question, timeout=_PATIENCE)
    finally:
        await connection.close()
    data: bytes = reply.data
    return data
