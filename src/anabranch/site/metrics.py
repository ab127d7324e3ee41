"""Counters and gauges of a site, as Prometheus reads them, over HTTP on this machine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

Sample = tuple[str, str, tuple[tuple[str, str], ...], float]
"""Kind ("counter" or "gauge"), name, labels, value."""

_REQUEST_MOST = 8192
_PATIENCE = 5.0


def text(samples: Iterable[Sample]) -> str:
    """
    >>> print(text([("counter", "rows", (("stream", "s"),), 3), ("gauge", "lag", (), 0.5)]), end="")
    # TYPE anabranch_lag gauge
    anabranch_lag 0.5
    # TYPE anabranch_rows_total counter
    anabranch_rows_total{stream="s"} 3
    """
    lines: list[str] = []
    told: set[str] = set()
    for kind, name, labels, value in sorted(samples, key=lambda sample: sample[1:3]):
        full = f"anabranch_{name}" + ("_total" if kind == "counter" else "")
        if full not in told:
            told.add(full)
            lines.append(f"# TYPE {full} {kind}")
        inner = ",".join(f'{key}="{_escaped(label)}"' for key, label in labels)
        lines.append(f"{full}{{{inner}}} {value:.15g}" if inner else f"{full} {value:.15g}")
    return "\n".join(lines) + "\n"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class MetricsServer:
    """Answers ``GET /metrics``. ``refused`` is told of whoever asks for nothing, or not in time."""

    def __init__(self, samples: Callable[[], Iterable[Sample]], refused: Callable[[], None]) -> None:
        self._samples = samples
        self._refused = refused
        self._server: asyncio.Server | None = None

    async def start(self, port: int) -> int:
        """The port, if 0 was asked for."""
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", port, limit=_REQUEST_MOST)
        return int(self._server.sockets[0].getsockname()[1])

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                request = await reader.readuntil(b"\r\n\r\n")
                found = request.startswith(b"GET /metrics ")
                body = text(self._samples()).encode() if found else b"there is only /metrics\n"
                status = b"200 OK" if found else b"404 Not Found"
                writer.write(
                    b"HTTP/1.1 " + status + b"\r\nContent-Type: text/plain; version=0.0.4\r\n"
                    b"Connection: close\r\nContent-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body
                )
                await writer.drain()
        except (OSError, TimeoutError, ValueError, EOFError, asyncio.LimitOverrunError):
            self._refused()
        writer.close()
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(writer.wait_closed(), 1)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
