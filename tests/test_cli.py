"""The command line: what it prints, and the exit status it ends with."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from anabranch.lab import bench_filter, demo, figures
from anabranch.lab.audit import audit
from anabranch.plan import Subscription, full_mesh
from anabranch.query import Query
from anabranch.sim.faults import Crash
from anabranch.sim.run import Run, simulate
from anabranch.topology import Topology

QUERY = """\
import anabranch as ab

q = ab.Query("small")
load = q.source("load", "host string, load double")
q.output("busy", load.where("load > 0.5", name="high").aggregate("2 seconds", by="host", n="count(*)"))
"""
SITES = """\
[network]
delay = "40 ms"

[sites.paris]
[sites.tokyo]
[sites.lima]
"""


GOOD = ("simulate", "small.py", "sites.toml", "--inputs", "load=load.csv")
COMMANDS = [
    ("demo",),
    ("simulate",),
    ("fuzz",),
    ("wan",),
    ("version",),
    ("bench", "filter"),
    ("bench", "sim"),
    ("bench", "failover"),
    ("bench", "throughput"),
    ("bench", "latency"),
    ("bench", "footprint"),
    ("lab", "list"),
    ("lab", "run"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(anabranch: Any, command: tuple[str, ...]) -> None:
    status, out, _ = anabranch(*command, "--help")
    assert status == 0
    assert "Example:" in out
    assert f"anabranch {' '.join(command)}" in " ".join(out.split())


def test_version_is_that_of_the_package(anabranch: Any) -> None:
    assert anabranch("version") == (0, f"{version('anabranch')}\n", "")


def test_demo_delivers_every_result_once_and_is_not_silent(anabranch: Any) -> None:
    status, out, _ = anabranch("demo", "--simulated", "--seconds", "12", "--json")
    report = json.loads(out.splitlines()[-1])
    assert status == 0
    assert report["audit"]["missing"] == report["audit"]["extra"] == 0
    assert report["audit"]["delivered"] > 100
    assert report["silence_s"]["replicated"] < 1 < report["silence_s"]["single_copy"]
    assert len(report["sites"]) == 7
    assert [fault["site"] for fault in report["faults"]] == ["frankfurt", "virginia"]
    assert sum(report["first_arrivals"].values()) == pytest.approx(1, abs=1e-3)


def test_demo_tells_its_story(anabranch: Any) -> None:
    status, out, _ = anabranch("demo", "--simulated", "--seconds", "10", "--seed", "3")
    assert status == 0
    for words in (
        "The plan",
        "frankfurt is killed",
        "virginia is cut off",
        "silence",
        "Whose copy came first",
        "The audit",
    ):
        assert words in out
    assert "✓" in out
    assert "✗ The" not in out


def test_demo_fails_if_its_audit_does(anabranch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = demo.play

    def lossy(scene: demo.Scenario, seed: int) -> demo.Outcome:
        outcome = honest(scene, seed)
        return msgspec.structs.replace(outcome, audit=msgspec.structs.replace(outcome.audit, missing=1))

    monkeypatch.setattr(demo, "play", lossy)
    status, out, _ = anabranch("demo", "--simulated", "--seconds", "10")
    assert status == 1
    assert "✗ The application did not receive the ideal run's results" in out


def test_simulate_audits_a_query_of_the_users(anabranch: Any, files: Path) -> None:
    status, out, _ = anabranch(*GOOD, "--json")
    report = json.loads(out.splitlines()[-1])
    (received,) = report["applications"].values()
    assert status == 0
    assert report["exact"]
    assert received["delivered"] == received["expected"] > 10
    assert received["missing"] == received["extra"] == 0


def test_simulate_survives_what_the_plan_can(anabranch: Any, files: Path) -> None:
    crash = '[[faults]]\ntype = "Crash"\nsite = "paris"\nat = 3\nuntil = 9\nkeep_log = false\n'
    Path("crash.toml").write_text(crash)
    status, out, _ = anabranch(*GOOD, "--k", "3", "--faults", "crash.toml")
    assert status == 0
    assert "Crash: site paris" in out
    assert "✓" in out


def test_simulate_says_so_if_results_are_missing(anabranch: Any, files: Path) -> None:
    crashes = [{"type": "Crash", "site": site, "at": 3} for site in ("paris", "tokyo", "lima")]
    Path("end.json").write_text(json.dumps(crashes))
    status, out, _ = anabranch(*GOOD, "--faults", "end.json", "--json")
    (received,) = json.loads(out.splitlines()[-1])["applications"].values()
    assert status == 1
    assert received["missing"] > 0
    assert not received["complete"]
    status, out, _ = anabranch(*GOOD, "--faults", "end.json")
    assert status == 1
    assert "stands still" in out


def test_simulate_takes_a_plan(anabranch: Any, files: Path) -> None:
    q = Query("small")
    high = q.source("load", "host string, load double").where("load > 0.5", name="high")
    q.output("busy", high.aggregate("2 seconds", by="host", n="count(*)"))
    places = {"high": ("lima",), "aggregate1": ("tokyo", "paris")}
    apps = (Subscription("desk", "busy", "lima"),)
    Path("plan.json").write_bytes(full_mesh(q.graph, {"load": ("paris",)}, places, apps).to_json())
    status, out, _ = anabranch(*GOOD, "--plan", "plan.json")
    assert status == 0
    assert "desk" in out


BAD: dict[str, tuple[dict[str, str], tuple[str, ...], str]] = {
    "no query file": ({}, ("simulate", "none.py", "sites.toml"), "none.py: cannot be read"),
    "not python": ({"x.py": "q = = 1"}, ("simulate", "x.py", "sites.toml"), "x.py, line 1: not Python"),
    "nul byte": ({"x.py": "q = '\0'"}, ("simulate", "x.py", "sites.toml"), "x.py"),
    "no q": ({"x.py": "a = 1"}, ("simulate", "x.py", "sites.toml"), "x.py: it defines no q"),
    "q is a number": ({"x.py": "q = 1"}, ("simulate", "x.py", "sites.toml"), "x.py: q is int"),
    "query raises": (
        {"x.py": "a = 1\nb = a / 0"},
        ("simulate", "x.py", "sites.toml"),
        "x.py, line 2: ZeroDivisionError",
    ),
    "query exits": (
        {"x.py": "raise SystemExit(0)"},
        ("simulate", "x.py", "sites.toml"),
        "x.py, line 1: SystemExit",
    ),
    "bad column": (
        {"x.py": QUERY.replace("load > 0.5", "lod > 0.5")},
        ("simulate", "x.py", "sites.toml"),
        "x.py, line 5: operator 'high'",
    ),
    "no output": (
        {"x.py": "import anabranch\nq = anabranch.Query('q')"},
        ("simulate", "x.py", "sites.toml"),
        "x.py: query",
    ),
    "no topology": ({}, ("simulate", "small.py", "none.toml"), "none.toml: cannot be read"),
    "bad topology": ({"s.toml": "[sites]"}, ("simulate", "small.py", "s.toml"), "s.toml:"),
    "no input": ({}, ("simulate", "small.py", "sites.toml"), "source 'load'"),
    "no equals": ({}, (*GOOD[:3], "--inputs", "load.csv"), "--inputs load.csv: write it as SOURCE=FILE"),
    "twice": ({}, (*GOOD, "--inputs", "load=load.csv"), "source 'load' is there twice"),
    "bad input": (
        {"x.csv": "ts,host\n1,a"},
        (*GOOD[:3], "--inputs", "load=x.csv"),
        "x.csv: column 'load' is missing",
    ),
    "bad plan": ({"p.json": "{}"}, (*GOOD, "--plan", "p.json"), "p.json: the plan is not as it should be"),
    "plan does not fit": (
        {"p.toml": 'epoch=1\ncoordinator="rome"\nsubscriptions=[]\nbranches=[]\n[entries]\n[replicas]'},
        (*GOOD, "--plan", "p.toml"),
        "p.toml: coordinator 'rome' is not a site",
    ),
    "bad fault": (
        {"f.json": '[{"type": "Quake"}]'},
        (*GOOD, "--faults", "f.json"),
        "f.json: fault 1 (Quake)",
    ),
    "fault elsewhere": (
        {"f.json": '[{"type": "Crash", "site": "rome", "at": 1}]'},
        (*GOOD, "--faults", "f.json"),
        "f.json: fault 1 (Crash): site is 'rome'",
    ),
    "too many replicas": ({}, (*GOOD, "--k", "9"), "k is 9"),
    "unknown figure": ({}, ("lab", "run", "nothing"), "there is no figure 'nothing'"),
    "figure without data": ({}, ("lab", "run", "traces", "--data", "nowhere"), "which is not in nowhere"),
    "bad case": ({"c.json": "{}"}, ("fuzz", "--replay", "c.json"), "c.json"),
    "unknown option": ({}, ("demo", "--sconds", "3"), "No such option"),
    "out of range": ({}, ("demo", "--seconds", "3"), "greater than or equal to 10"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_a_sentence_and_status_2(anabranch: Any, files: Path, name: str) -> None:
    written, words, sentence = BAD[name]
    for file, text in written.items():
        Path(file).write_text(text)
    status, out, err = anabranch(*words)
    assert status == 2
    assert out == ""
    assert sentence in err
    assert "Traceback" not in err


def test_what_only_some_commands_need_is_named(
    anabranch: Any, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in figures.FIGURES["traces"].files:
        Path(file).touch()
    monkeypatch.setitem(sys.modules, "anabranch.lab.traces", None)
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    monkeypatch.delitem(sys.modules, "anabranch.lab.traces")
    status, _, err = anabranch("lab", "run", "traces", "--data", ".")
    assert status == 2
    assert "pip install 'anabranch[lab]'" in err


def test_fuzz_reports_in_json(anabranch: Any, files: Path) -> None:
    status, out, _ = anabranch("fuzz", "--runs", "2", "--seed", "5", "--workers", "1", "--json")
    report = json.loads(out.splitlines()[-1])
    assert status == 0
    assert report["runs"] == 2
    assert report["failures"] == []


def test_measures_are_shown_and_reported(anabranch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_filter, "measure", lambda: {"k2_batch100_mtuples_s": 3.5, "rounds": 7})
    assert anabranch("bench", "filter", "--json") == (0, '{"k2_batch100_mtuples_s":3.5,"rounds":7}\n', "")
    status, out, _ = anabranch("bench", "filter")
    assert status == 0
    assert "k2_batch100_mtuples_s" in out


def test_figures_are_listed(anabranch: Any) -> None:
    status, out, _ = anabranch("lab", "list", "--json")
    assert status == 0
    assert json.loads(out)["figures"].keys() == figures.FIGURES.keys()


def test_the_same_seed_is_the_same_run_in_any_process(files: Path) -> None:
    digests = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "anabranch", *GOOD, "--seed", "4", "--json"],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(json.loads(done.stdout)["digest"])
    assert len(digests) == 1


def audited(change: Any) -> Any:
    """The audit of a run whose deliveries were changed afterwards."""
    q = Query("q")
    q.output("o", q.source("s", "a double"), order="timestamp")
    inputs = {"s": pa.table({"ts": [1, 2, 3, 4], "a": [0.5, float("nan"), None, 0.5]})}
    plan = full_mesh(q.graph, {"s": ("x",)}, {}, (Subscription("app", "o", "x"),))
    run = simulate(q.graph, inputs, Topology.from_rtt([[0]], ["x"]), plan)
    table = run.deliveries["app"]
    changed = Run(
        run.outputs, {"app": change(table)}, run.accepted, run.events, run.metrics, run.stalled, run.digest
    )
    return audit(q.graph, inputs, plan, changed)["app"]


def test_the_audit_sees_what_is_wrong() -> None:
    assert audited(lambda table: table).exact
    assert audited(lambda table: table.slice(1)).missing == 1
    twice = audited(lambda table: pa.concat_tables([table, table.slice(3)]))
    assert (twice.missing, twice.extra, twice.exact) == (0, 1, False)
    other = audited(lambda table: table.set_column(1, "a", pa.array([0.25, float("nan"), None, 0.5])))
    assert (other.missing, other.extra) == (1, 1)
    swapped = audited(lambda table: table.take([1, 0, 2, 3]))
    assert (swapped.missing, swapped.extra, swapped.in_order, swapped.exact) == (0, 0, False, False)


def test_the_demo_breaks_what_it_says() -> None:
    scene = demo.scenario(20)
    (crash,) = [fault for fault in scene.faults if isinstance(fault, Crash)]
    assert crash.site == demo.KILLED
    assert len(scene.faults) == 1 + 2 * (len(scene.topology.sites) - 1)
    assert scene.alone.replicas["worst"] == (demo.KILLED,)
    assert set(scene.plan.replicas["worst"]) > {demo.KILLED, demo.CUT_OFF}
