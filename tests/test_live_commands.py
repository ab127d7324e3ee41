"""The commands that run live sites and talk to them: what they print, and the exit status they end with."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet
import pytest

import anabranch as ab
from anabranch.cli.live import target
from anabranch.cli.simulate import load_query
from anabranch.inputs import load_inputs
from anabranch.site.producer import Producer
from anabranch.site.replay import Pace, Replay

QUERY = """\
import anabranch as ab

q = ab.Query("small")
load = q.source("load", "host string, load double")
high = load.where("load > 0.5", name="high")
q.output("busy", high.aggregate("2 seconds", by="host", n="count(*)", mean="avg(load)", name="counted"))
"""
SITES = '[network]\ndelay = "20 ms"\n\n[sites.paris]\n[sites.tokyo]\n[sites.lima]\n'
RUN = ("run", "small.py", "sites.toml", "--inputs", "load=load.csv", "--speed", "8")


def test_a_run_of_what_sites_fetch_and_deliver_themselves(anabranch: Any, files: Path) -> None:
    """It ends when the streams have ended and everything is where it goes."""
    query = QUERY.replace('load double")', 'load double", identity="partition")')
    Path("small.py").write_text(query)
    Path("in").mkdir()
    Path("load.csv").rename("in/1.csv")
    Path("in/_END").touch()
    attached = """
[[live.sources]]
kind = "files"
source = "load"
directory = "in"

[[live.sinks]]
kind = "parquet"
application = "busy@NAME"
directory = "out"
"""
    found = load_query(Path("small.py"))
    plan = ab.spread(found, ab.Topology.load("sites.toml"), 2)
    Path("sites.toml").write_text(SITES + attached.replace("busy@NAME", plan.subscriptions[0].name))
    status, out, err = anabranch("run", "small.py", "sites.toml", "--directory", "kept", "--json")
    assert (status, err) == (0, "")
    audit = objects(out)[-1]["audit"][plan.subscriptions[0].name]
    assert audit["expected"] is None
    ideal = ab.ideal(found, load_inputs(found, {"load": "in/1.csv"}))["busy"]
    written = [pa.parquet.read_table(path) for path in sorted(Path("out").glob("*.parquet"))]
    assert sum(table.num_rows for table in written) == ideal.num_rows == audit["delivered"]
    assert (Path("out") / "_END").exists()
    status, _, err = anabranch("run", "small.py", "sites.toml", "--inputs", "load=in/1.csv")
    assert status == 2
    assert "the sites fetch this source themselves; leave the input out" in err


def objects(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_a_run_delivers_the_ideal_run_and_the_audit_of_what_it_printed_agrees(
    anabranch: Any, files: Path
) -> None:
    status, out, _ = anabranch(*RUN, "--directory", "kept", "--json")
    said = objects(out)
    assert status == 0
    assert said[0]["starting"] == ["paris", "tokyo", "lima"]
    assert {each["up"] for each in said if "up" in each} == {"paris", "tokyo", "lima"}
    assert said[-1]["exact"]
    ((name, audit),) = said[-1]["audit"].items()
    rows = [each["row"] for each in said if each.get("application") == name]
    assert audit["delivered"] == audit["expected"] == len(rows) > 10
    assert said[-1]["sites"]["paris"]["query"] == "small"
    assert (files / "kept" / "paris" / "agent.jsonl").is_file()

    Path("received.ndjson").write_text("\n".join(map(json.dumps, rows)))
    check = ("audit", "small.py", "--inputs", "load=load.csv", "--received", "busy=received.ndjson", "--json")
    assert anabranch(*check)[0] == 0
    Path("received.ndjson").write_text("\n".join(map(json.dumps, [*rows[1:], rows[5]])))
    status, out, _ = anabranch(*check)
    assert status == 1
    verdict = json.loads(out)["audit"]["busy"]
    assert (verdict["missing"], verdict["extra"]) == (1, 1)
    assert len(verdict["examples"]["missing"][0]) == 6
    assert "is not empty" in anabranch(*RUN, "--directory", "kept")[2]


def test_a_run_that_is_interrupted_leaves_nothing_behind(files: Path) -> None:
    slow = [*RUN[:-1], "0.01", "--json", "--directory", "kept"]
    with subprocess.Popen(
        [sys.executable, "-m", "anabranch", *slow], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        ups = 0
        for line in process.stdout:
            ups += "up" in json.loads(line)
            if ups == 3:
                break
        started = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "nothing is left running" in err
    assert len(started) >= 9
    assert not any(each.is_running() for each in started)


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


@contextmanager
def sites_running(*names: str) -> Iterator[None]:
    """``anabranch site run`` for each."""
    with ExitStack() as running:
        processes = []
        for name in names:
            words = ["site", "run", name, "sites.toml", "small.py", "--plan", "plan.json"]
            process = subprocess.Popen([sys.executable, "-m", "anabranch", *words], stdout=subprocess.PIPE)
            processes.append(running.enter_context(process))
        try:
            yield
        finally:
            for process in processes:
                process.terminate()
    assert [process.returncode for process in processes] == [0] * len(processes)


def test_sites_of_their_own_are_run_watched_replanned_tailed_and_audited(anabranch: Any, files: Path) -> None:
    """As on several hosts: certificates from `site init`, one `site run` each, everything else by command."""
    names = ("paris", "tokyo", "lima")
    tables = [f"[sites.{name}]\nport = {port}\n" for name, port in zip(names, free_ports(3), strict=True)]
    Path("sites.toml").write_text(
        '[network]\ndelay = "0 ms"\n[live]\ndirectory = "data"\nsecurity = "keys"\n' + "".join(tables)
    )
    assert "anabranch site init" in anabranch("status", "small.py", "sites.toml")[2]
    status, out, _ = anabranch("site", "init", "sites.toml", "--directory", "keys", "--json")
    assert (status, len(json.loads(out)["made"])) == (0, 5)
    assert (
        json.loads(anabranch("site", "init", "sites.toml", "--directory", "keys", "--json")[1])["made"] == []
    )

    found = target(Path("small.py"), Path("sites.toml"), "client")
    apps = [ab.Subscription("desk", "busy", "lima")]
    plan = ab.full_mesh(
        found.graph,
        {"load": ["paris", "tokyo"]},
        {"high": ["paris", "tokyo"], "counted": ["tokyo", "lima"]},
        apps,
        epoch=3,
    )
    Path("plan.json").write_bytes(plan.to_json())
    with sites_running(*names):
        until_up(anabranch, names)
        status, out, _ = anabranch("plan", "show", "small.py", "sites.toml", "--json")
        assert ab.Plan.from_json(out) == plan
        status, out, _ = anabranch("plan", "apply", "plan.json", "small.py", "sites.toml", "--json")
        assert status == 0
        assert json.loads(out) == {"epoch": 4, "follow": list(names), "behind": [], "silent": []}

        inputs = load_inputs(found.graph, {"load": "load.csv"})

        async def feed() -> None:
            replay = Replay(found.graph.sources[0], inputs["load"], Pace(0, speed=20))
            async with Producer(found.deployment(plan), "load", arrived=replay.arrived) as producer:
                await replay.feed(producer)

        asyncio.run(feed())
        status, out, _ = anabranch("tail", "busy", "small.py", "sites.toml", "--limit", "3", "--json")
        assert (status, len(objects(out))) == (0, 3)
        assert set(objects(out)[0]) == {"ts", "window_start", "window_end", "host", "n", "mean"}
        given = ("--inputs", "load=load.csv", "--sites", "sites.toml", "--json")
        status, out, _ = anabranch("audit", "small.py", *given)
        assert (status, json.loads(out)["audit"]["desk"]["missing"]) == (0, 0)
        assert "nobody subscribes to 'idle'" in anabranch("tail", "idle", "small.py", "sites.toml")[2]
        status, out, _ = anabranch("status", "small.py", "sites.toml")
        assert status == 0
        assert "counted" in out
    status, out, _ = anabranch("status", "small.py", "sites.toml", "--json")
    assert (status, json.loads(out)["answering"]) == (1, 0)


def until_up(anabranch: Any, names: tuple[str, ...]) -> None:
    while True:
        _, out, _ = anabranch("status", "small.py", "sites.toml", "--json")
        report = json.loads(out)
        if report["answering"] == len(names) and all(
            all(site["peers"].values()) for site in report["sites"].values()
        ):
            return


COMMANDS = ["run", "status", "tail", "audit", "plan show", "plan apply", "site run", "site init"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(anabranch: Any, command: str) -> None:
    status, out, _ = anabranch(*command.split(), "--help")
    assert status == 0
    assert f"Example: anabranch {command} " in " ".join(out.split())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run", "small.py", "sites.toml"), "source 'load' has no input"),
        (("audit", "small.py", "--inputs", "load=load.csv"), "either --received OUTPUT=FILE or --sites"),
        (
            ("audit", "small.py", "--inputs", "load=load.csv", "--received", "busy=load.csv"),
            "no column 'window_start'",
        ),
        (
            ("audit", "small.py", "--inputs", "load=load.csv", "--received", "idle=load.csv"),
            "no output 'idle'",
        ),
        (("site", "run", "rome", "one.toml", "small.py"), "there is no site 'rome'"),
        (("site", "run", "paris", "sites.toml", "small.py"), "give each a port or a host of its own"),
        (("status", "small.py", "far.toml"), "is not this machine"),
        (("plan", "show", "small.py", "one.toml"), "no site answers"),
        (("plan", "apply", "plan.json", "small.py", "one.toml"), "cannot be read"),
    ],
)
def test_mistakes_are_told_in_one_sentence(
    anabranch: Any, files: Path, words: tuple[str, ...], says: str
) -> None:
    Path("one.toml").write_text(f"[sites.paris]\nport = {free_ports(1)[0]}\n")
    Path("far.toml").write_text('[sites.paris]\nhost = "paris.example.net"\n')
    status, out, err = anabranch(*words)
    assert (status, out) == (2, "")
    assert says in err
    assert len(err.splitlines()) == 1
