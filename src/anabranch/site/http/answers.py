"""What a request is answered when it is not done: a status, and a sentence."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from anabranch.site.http.settings import ALL, Http, Token, is_loopback


class Refused(Exception):
    """The request is not done. ``why`` is what it is counted as; ``more`` goes into the answer."""

    def __init__(self, status: int, why: str, sentence: str, **more: Any) -> None:
        super().__init__(sentence)
        self.status = status
        self.why = why
        self.sentence = sentence
        self.more = more


def json(status: int, content: object, headers: dict[str, str] | None = None) -> Response:
    body = msgspec.json.encode(content) + b"\n"
    return Response(body, status, headers, "application/json")


def answer(refused: Refused) -> Response:
    headers = {"connection": "close"}
    if refused.status == 401:
        headers["www-authenticate"] = "Bearer"
    if refused.status == 503:
        headers["retry-after"] = "1"
    return json(refused.status, {"error": refused.sentence, **refused.more}, headers)


def permit(settings: Http, request: Request, kind: str, name: str = "") -> None:
    """Raises Refused unless the request's token allows this; ``kind``: sources, outputs or status."""
    token = settings.grants(request.headers.get("authorization", ""))
    if token is None:
        raise Refused(401, "token", "this needs a token: send the header Authorization: Bearer SECRET")
    if not settings.tokens and not is_loopback(_host(request)):
        raise Refused(421, "host", "this endpoint is for this machine; call it 127.0.0.1 or localhost")
    if not _allows(token, kind, name):
        what = f"{kind[:-1]} {name[:80]!r}" if name else "that"
        raise Refused(403, "scope", f"this token is not for {what}; ask for one that is")


def _host(request: Request) -> str:
    try:
        return request.url.hostname or ""
    except ValueError:
        return ""


def _allows(token: Token, kind: str, name: str) -> bool:
    if kind == "status":
        return token.status
    scope = token.sources if kind == "sources" else token.outputs
    return ALL in scope or name in scope
