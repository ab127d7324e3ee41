"""A Java for Spark where the machine has none."""

import os
import subprocess
from pathlib import Path

import pytest

from anabranch.engines.spark.session import find_java, packaged_java


def test_the_packaged_java_runs_and_does_without_what_it_lacks(tmp_path: Path) -> None:
    home = packaged_java(tmp_path / "java")
    made = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-Dx=a b", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "25" in made.stderr
    assert packaged_java(tmp_path / "java") == home


def test_a_java_of_the_users_own_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/opt/java")
    find_java(tmp_path)
    assert os.environ["JAVA_HOME"] == "/opt/java"
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "")
    find_java(tmp_path)
    assert os.environ["JAVA_HOME"] == str(tmp_path / "java")
