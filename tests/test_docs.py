"""What the documentation shows, works; what it refers to, exists."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

import pytest

from anabranch.cli.reference import page
from anabranch.protocols.events import Event

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
NOT_HERE = ("make ", ". ")
"""Beginnings of commands that install, or change the shell."""


def run_blocks(text: str, directory: Path) -> int:
    """Writes the blocks that are files and runs the others, in order; returns how many ran."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    ran = 0
    for language, file, code in FENCE.findall(text):
        if file:
            (directory / file).write_text(code)
            continue
        if language == "python":
            commands = [[sys.executable, "-c", code]]
        elif language == "sh":
            commands = [["sh", "-c", line] for line in code.splitlines() if not line.startswith(NOT_HERE)]
        else:
            continue
        for command in commands:
            done = subprocess.run(
                command, cwd=directory, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            ran += 1
    return ran


def test_the_quickstart_runs_as_it_is_written(tmp_path: Path) -> None:
    assert run_blocks((ROOT / "docs" / "quickstart.md").read_text(), tmp_path) == 5


def test_the_example_of_the_readme_runs(tmp_path: Path) -> None:
    assert run_blocks((ROOT / "README.md").read_text(), tmp_path) == 1


def test_the_examples_of_in_and_out_run(tmp_path: Path) -> None:
    assert run_blocks((ROOT / "docs" / "guides" / "in-and-out.md").read_text(), tmp_path) == 3


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    for target in LINK.findall(path.read_text()):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        linked = (path.parent / file).resolve() if file else path
        assert linked.exists(), f"{path}: {target}"
        if anchor:
            assert anchor in anchors(linked), f"{path}: {target}"


def anchors(path: Path) -> list[str]:
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_every_page_can_be_reached_from_the_index() -> None:
    docs = ROOT / "docs"
    linked = {(docs / target).resolve() for target in LINK.findall((docs / "index.md").read_text())}
    assert {path for path in docs.rglob("*.md") if path.name != "index.md"} <= linked


def test_whatever_a_site_reports_is_explained_to_who_operates_it() -> None:
    """Events with what to do, and what they promise; lines of the journals with what they say."""
    site = "\n".join(path.read_text() for path in sorted((ROOT / "src" / "anabranch" / "site").rglob("*.py")))
    events = {each.__name__ for each in get_args(Event)} | set(re.findall(r'event="(\w+)"', site))
    lines = set(re.findall(r'(?:journal\.write|_tell)\(\s*"([^"]+)"', site))
    assert {"Gap", "SlowReader"} <= events
    assert {"branch broke", "engine failed"} <= lines
    operations = (ROOT / "docs" / "guides" / "operations.md").read_text()
    guarantees = (ROOT / "docs" / "concepts" / "guarantees.md").read_text()
    for event in events:
        assert f"| `{event}` |" in operations, event
        assert f"| `{event}` |" in guarantees, event
    explained = {
        word for row in re.findall(r"^\|([^|]+)\|", operations, re.M) for word in re.findall("`([^`]+)`", row)
    }
    assert lines <= explained, lines - explained


def test_the_reference_of_the_command_line_is_up_to_date() -> None:
    assert (ROOT / "docs" / "reference" / "cli.md").read_text() == page(), "run: make docs"


def test_figures_are_well_formed_and_shown_on_a_page() -> None:
    figures = sorted((ROOT / "docs" / "figures").iterdir())
    assert {figure.suffix for figure in figures} == {".svg", ".png"}
    shown = {
        (path.parent / target).resolve()
        for path in PAGES
        for target in LINK.findall(path.read_text())
        if target.endswith((".svg", ".png"))
    }
    for figure in figures:
        if figure.suffix == ".svg":
            assert ElementTree.parse(figure).getroot().tag == "{http://www.w3.org/2000/svg}svg"
        else:
            assert figure.read_bytes().startswith(b"\x89PNG")
        assert figure.resolve() in shown
