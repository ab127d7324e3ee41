"""How a site's HTTP endpoint is configured: where it listens, who may do what, and its limits."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re

import msgspec

ALL = "*"
"""In a token's scope: every source, or every output."""


class HttpError(ValueError):
    """An endpoint that cannot be: the sentence says what to change."""


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who shows the secret whose SHA-256 this is (hexadecimal) may bring tuples to ``sources``, receive
    ``outputs``, and look at the site's ``status`` and metrics."""

    sha256: str
    sources: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    status: bool = False

    @staticmethod
    def of(
        secret: str, sources: tuple[str, ...] = (), outputs: tuple[str, ...] = (), status: bool = False
    ) -> Token:
        return Token(hashlib.sha256(secret.encode()).hexdigest(), sources, outputs, status)


class Http(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``port`` 0: any that is free. Without ``tokens`` everybody on this machine may do everything; an
    endpoint that others reach must have some. Times are seconds, sizes bytes."""

    host: str = "127.0.0.1"
    port: int = 0
    tokens: tuple[Token, ...] = ()
    connections: int = 256
    header_bytes: int = 16 << 10
    header_timeout: float = 10.0
    body_bytes: int = 8 << 20
    """Of one request; of one line where the body is a stream."""
    body_rows: int = 200_000
    body_timeout: float = 30.0
    """For the whole body; for the next line where the body is a stream."""
    answer_timeout: float = 30.0
    """How long tuples may take to be acknowledged before the client is asked to send them again."""
    reader_timeout: float = 30.0
    """How long a reader may take nothing before it is disconnected."""
    readers: int = 64
    """Of outputs, at the same time."""
    producers: int = 10_000
    """Clients with a name of their own that are remembered, of each source."""
    unsafe_bytes: int = 64 << 20
    """Of tuples of all clients that are not acknowledged yet, before more are refused."""

    def check(self) -> None:
        if not is_loopback(self.host) and not self.tokens:
            raise HttpError(
                f"http: host {self.host!r} can be reached from elsewhere, but there are no tokens; "
                "add some, or listen on 127.0.0.1"
            )
        for token in self.tokens:
            if not re.fullmatch("[0-9a-f]{64}", token.sha256):
                raise HttpError(
                    f"http: token {token.sha256[:8]!r}... is no SHA-256 in hexadecimal; "
                    "give the hash of the secret, not the secret"
                )

    def grants(self, authorization: str) -> Token | None:
        """What the header allows; None: nothing. Takes as long whichever token it is, or none."""
        if not self.tokens:
            return Token("", (ALL,), (ALL,), True)
        scheme, _, secret = authorization.partition(" ")
        shown = hashlib.sha256(secret.strip().encode()).hexdigest()
        granted = None
        for token in self.tokens:
            if hmac.compare_digest(shown, token.sha256) and scheme.lower() == "bearer":
                granted = token
        return granted


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
