"""Tuples over HTTP into two sites on this machine: how many a second, and how soon they are answered.

``python benchmarks/http_intake.py`` prints JSON. Sites, their log servers and the client share the machine.
"""

import asyncio
import http.client
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import anabranch as ab
from anabranch.site.cluster import Cluster
from anabranch.site.http.settings import Http

ROWS, LARGE, SMALL = 50_000, 12, 200
BEGIN = 1_700_000_000_000_000


def query() -> ab.Query:
    q = ab.Query("bench")
    q.output("alerts", q.source("load", "host string, load double").where("load > 0.999", name="busy"))
    return q


def rows(first: int, count: int) -> pa.Table:
    numbers = np.arange(first, first + count)
    ts = pa.array(BEGIN + numbers).cast(pa.timestamp("us", "UTC"))
    return pa.table({"ts": ts, "host": [f"h{n % 50}" for n in numbers], "load": numbers % 1000 / 1000})


def arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def lines(table: pa.Table) -> bytes:
    objects = table.set_column(0, "ts", table["ts"].cast(pa.int64())).to_pylist()
    return b"".join(json.dumps(row).encode() + b"\n" for row in objects)


def measure(port: int) -> dict[str, float]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    sent: dict[str, int] = {}

    def post(client: str, body: bytes, kind: str, count: int) -> float:
        first = sent.get(client, 0)
        headers = {"content-type": kind, "anabranch-producer": client, "anabranch-first": str(first)}
        began = time.perf_counter()
        connection.request("POST", "/sources/load", body, headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
        assert response.status == 200, answer
        sent[client] = first + count
        return time.perf_counter() - began

    kinds = {
        "arrow": (arrow, "application/vnd.apache.arrow.stream"),
        "ndjson": (lines, "application/x-ndjson"),
    }
    told: dict[str, float] = {}
    for number, (name, (write, kind)) in enumerate(kinds.items()):
        # Later than what came before: nothing is late.
        bodies = [write(rows((LARGE * number + i) * ROWS, ROWS)) for i in range(LARGE)]
        spent = sum(post(name, body, kind, ROWS) for body in bodies)
        told[f"{name}_rows_s"] = round(LARGE * ROWS / spent)
    bodies = [lines(rows(2 * LARGE * ROWS + i, 1)) for i in range(SMALL)]
    taken = np.array([post("small", body, kinds["ndjson"][1], 1) for body in bodies]) * 1e3
    p50, p99 = (round(float(value), 1) for value in np.percentile(taken, (50, 99)))
    return told | {"one_row_p50_ms": p50, "one_row_p99_ms": p99}


async def main() -> None:
    q = query()
    plan = ab.full_mesh(
        q.graph,
        {"load": ("paris", "tokyo")},
        {"busy": ("paris",)},
        (ab.Subscription("alerts@paris", "alerts", "paris"),),
    )
    topology = ab.Topology.from_rtt([[0, 1], [1, 0]], ("paris", "tokyo"))
    with tempfile.TemporaryDirectory() as directory:
        async with Cluster(q, topology, plan, Path(directory), http=Http()) as cluster:
            print(json.dumps(await asyncio.to_thread(measure, cluster.http_ports["paris"])))


asyncio.run(main())
