"""A client of the HTTP endpoint that does only what it is told."""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from embedded import Sites, busy_query

import anabranch as ab
from anabranch.site.http.settings import Http

NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
PLAN = ab.full_mesh(
    busy_query().graph,
    {"load": ("paris", "tokyo")},
    {"busy": ("paris", "tokyo")},
    (ab.Subscription("alerts@paris", "alerts", "paris"),),
)


@asynccontextmanager
async def sites(directory: Path, http: Http | None = None) -> AsyncIterator[Sites]:
    """Two of them, each with an endpoint."""
    async with Sites(busy_query().graph, PLAN, ("paris", "tokyo"), directory, http=http or Http()) as running:
        while not all(agent.http_port and agent.life for agent in running.agents.values()):
            await asyncio.sleep(0.01)
        yield running


def _call(
    port: int, method: str, path: str, body: Any, headers: dict[str, str]
) -> tuple[int, Any, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=40)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read(), dict(response.headers)
    finally:
        connection.close()


async def get(port: int, path: str, **headers: str) -> tuple[int, bytes]:
    """Status and body; ``last_event_id`` is the header Last-Event-ID."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return (await asyncio.to_thread(_call, port, "GET", path, None, named))[:2]


async def post(
    port: int, body: Any, path: str = "/sources/load", kind: str = NDJSON, **headers: Any
) -> tuple[int, dict[str, Any]]:
    """``first=3`` is the header Anabranch-First: 3, and so on."""
    named = {"content-type": kind}
    for name, value in headers.items():
        named[name if name in ("authorization", "content-encoding") else f"anabranch-{name}"] = str(value)
    status, answer, _ = await asyncio.to_thread(_call, port, "POST", path, body, named)
    return status, json.loads(answer)


def lines(table: pa.Table) -> bytes:
    rows = table.set_column(0, "ts", table["ts"].cast(pa.int64())).to_pylist()
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def arrow(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
