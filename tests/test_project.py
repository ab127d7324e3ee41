"""The project as a whole: what a clone brings is what it says."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import anabranch

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = [Requirement(line) for line in (ROOT / "requirements.lock").read_text().splitlines() if line]


def test_the_lock_pins_one_version_for_each_platform_and_names_no_place() -> None:
    for pin in PINS:
        assert [specifier.operator for specifier in pin.specifier] == ["=="], pin
        assert pin.url is None
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    assert "--" not in text


@pytest.mark.parametrize("extra", [None, "lab", "bench", "dev"])
def test_the_lock_has_what_the_project_asks_for(extra: str | None) -> None:
    asked = PROJECT["dependencies"] if extra is None else PROJECT["optional-dependencies"][extra]
    for requirement in map(Requirement, asked):
        if requirement.name == "anabranch":
            continue
        pins = [pin for pin in PINS if pin.name == requirement.name]
        assert pins, requirement
        for pin in pins:
            assert requirement.specifier.contains(next(iter(pin.specifier)).version), (requirement, pin)


def test_versions_agree() -> None:
    assert version("anabranch") == PROJECT["version"]
    assert f"## [{PROJECT['version']}]" in (ROOT / "CHANGELOG.md").read_text()


def test_continuous_integration_runs_the_tests() -> None:
    run = ROOT / ".ci" / "run"
    assert os.access(run, os.X_OK)
    assert run.read_text().splitlines()[-1] == "make test"


def test_every_target_of_the_makefile_that_is_spoken_of_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)
    assert {"demo", "test", "test-fast", "lock", "fuzz", "bench", "clean", "docs"} <= set(targets)
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"`make ([a-z-]+)`", page.read_text()):
            assert target in targets, f"{page}: make {target}"


def test_every_public_name_is_there() -> None:
    for name in anabranch.__all__:
        assert getattr(anabranch, name).__name__ == name
    assert set(anabranch.__all__) <= set(dir(anabranch))
    assert list(anabranch.__all__) == sorted(anabranch.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        anabranch.nonsense  # noqa: B018


def test_public_names_are_known_to_type_checkers() -> None:
    source = (ROOT / "src" / "anabranch" / "__init__.py").read_text()
    checked = source[source.index("if TYPE_CHECKING") : source.index("_HOMES")]
    for name in anabranch.__all__:
        assert re.search(rf"\b{name}\b", checked), name


def test_defining_a_query_waits_for_no_compiled_kernel() -> None:
    code = (
        "import sys, anabranch as ab; q = ab.Query('q')\n"
        "q.output('o', q.source('s', 'a int').where('a > 1')); q.graph\n"
        "assert not {'numba', 'rich', 'matplotlib'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
