"""A site's HTTP endpoint, whole: what is asked for where, and who answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from anabranch.plan import Plan
from anabranch.site.client import ClientFailed
from anabranch.site.config import Deployment, Schemas
from anabranch.site.http.answers import Refused, answer, permit
from anabranch.site.http.clients import Clients
from anabranch.site.http.memory import Memory
from anabranch.site.http.posting import Posting
from anabranch.site.http.reading import Stream, form_of
from anabranch.site.http.server import HttpServer, Refusals
from anabranch.site.http.settings import Http
from anabranch.site.http.view import carriers, latest, new_name, viewing
from anabranch.site.intake import Intake
from anabranch.site.journal import Journal
from anabranch.site.metrics import Sample, text
from anabranch.site.status import SiteStatus
from anabranch.site.subscription import Receiver

Handler = Callable[[Request], Awaitable[Response]]


class Endpoint:
    """Of the site ``site``. ``plan`` gives the plan of now, ``clock`` the site's time; ``status`` may be None
    while the site has not begun."""

    def __init__(
        self,
        settings: Http,
        deployment: Deployment,
        site: str,
        directory: Path,
        plan: Callable[[], Plan],
        clock: Callable[[], int],
        status: Callable[[], SiteStatus | None],
        samples: Callable[[], Iterable[Sample]],
        journal: Journal,
    ) -> None:
        self._settings = settings
        self._deployment = deployment
        self._site = site
        self._plan = plan
        self._status = status
        self._samples = samples
        self._journal = journal
        self._refuse = Refusals(journal)
        self._readers = 0
        self._schemas = Schemas(deployment.graph)
        self._intake = Intake(deployment, f"http@{site}", journal, clock)
        self._memory = Memory(directory / "http-clients.jsonl")
        self._clients = Clients(site, settings, self._intake, self._memory, journal)
        self._posting = Posting(
            settings, deployment.graph.sources, plan, self._clients, self._intake, journal
        )
        routes = [
            Route("/sources/{name}", self._guarded("sources", self._posting), methods=["POST"]),
            Route("/outputs/{name}", self._guarded("outputs", self._read), methods=["GET"]),
            Route("/status", self._guarded("status", self._tell_status), methods=["GET"]),
            Route("/metrics", self._guarded("status", self._tell_metrics), methods=["GET"]),
        ]
        app = Starlette(routes=routes, exception_handlers={HTTPException: self._on_unknown})
        self._server = HttpServer(settings, app, self._refuse)

    async def start(self) -> int:
        """The port."""
        self._clients.start(self._deployment.graph.sources, self._plan())
        return await self._server.start()

    async def close(self) -> None:
        await self._server.close()
        await self._clients.close()
        await self._intake.close()
        self._memory.close()

    def _guarded(self, kind: str, handle: Handler) -> Handler:
        """Only for who may, and what is refused is counted."""

        async def guarded(request: Request) -> Response:
            try:
                permit(self._settings, request, kind, request.path_params.get("name", ""))
                return await handle(request)
            except Refused as refused:
                client = request.client
                who = "" if client is None else f"{client.host}:{client.port}"
                self._refuse(refused.why, refused.sentence, who)
                return answer(refused)
            except ClientFailed as error:
                self._refuse("failed", str(error))
                return answer(Refused(503, "failed", "this endpoint has failed; send it to another site's"))
            except ClientDisconnect:
                self._refuse("gone", "the client was gone before it had sent all")
                return Response(status_code=400)

        return guarded

    async def _on_unknown(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        there = "there is POST /sources/NAME, GET /outputs/NAME, GET /status and GET /metrics"
        self._refuse("unknown", there)
        return answer(Refused(status, "unknown", there))

    # --- results

    async def _read(self, request: Request) -> Response:
        name = request.path_params["name"]
        outputs = {output.name: output for output in self._deployment.graph.outputs}
        output = outputs.get(name)
        if output is None:
            known = ", ".join(outputs)
            raise Refused(404, "unknown", f"there is no output {name[:80]!r}; the outputs are {known}")
        plan = self._plan()
        sites = carriers(plan, name)
        if not sites:
            nobody = f"the plan has no application for output {name!r}, so no site keeps it; add one"
            raise Refused(404, "unknown", nobody)
        schema = self._schemas.rows(output.stream)
        assert schema is not None
        form = form_of(request.headers.get("accept", ""), schema)
        if form is None:
            kinds = "text/event-stream, application/x-ndjson or application/vnd.apache.arrow.stream"
            raise Refused(406, "type", f"results are {kinds}; accept one of them")
        order = request.query_params.get("order", output.order or "")
        if order not in ("", "timestamp"):
            raise Refused(400, "parameter", "order is timestamp, or is not there")
        if self._readers >= self._settings.readers:
            raise Refused(503, "readers", "there are too many readers; try again later")
        after = await self._after(request, output.stream, sites)
        reader = new_name(self._site)
        view = viewing(reader, name, output.stream, self._site)
        deployment = msgspec.structs.replace(self._deployment, plan=plan)
        receiver = Receiver(deployment, reader, self._journal, order == "timestamp", after, view)
        self._readers += 1
        return Stream(request, receiver, form, self._settings, self._journal, self._on_read)

    def _on_read(self) -> None:
        self._readers -= 1

    async def _after(self, request: Request, stream: str, sites: tuple[str, ...]) -> int | None:
        said = request.headers.get("last-event-id") or request.query_params.get("after")
        if not said:
            return None
        if said == "now":
            return await latest(self._deployment, stream, sites)
        try:
            if said.lstrip("-").isdigit() and len(said) < 18:
                return int(said)
            moment = datetime.fromisoformat(said)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return round(moment.timestamp() * 1e6)
        except (ValueError, OverflowError):
            what = "a cursor (microseconds since 1970), an ISO 8601 timestamp, or now"
            raise Refused(400, "parameter", f"after: {said[:80]!r} is not {what}") from None

    # --- how the site stands

    async def _tell_status(self, request: Request) -> Response:
        status = self._status()
        if status is None:
            raise Refused(503, "starting", "the site is starting; ask again")
        return Response(msgspec.json.encode(status) + b"\n", media_type="application/json")

    async def _tell_metrics(self, request: Request) -> Response:
        if self._status() is None:
            raise Refused(503, "starting", "the site is starting; ask again")
        return Response(text(self._samples()), media_type="text/plain; version=0.0.4")
