"""A test is not wrong because the machine is busy: no deadline for single examples. And what tests of
commands have in common."""

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from anabranch.cli import main

settings.register_profile("anabranch", deadline=None)
settings.load_profile("anabranch")


Outcome = tuple[int, str, str]


@pytest.fixture
def anabranch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command line: exit status, standard output, standard error."""

    def run(*words: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["anabranch", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return code, out, err

    return run


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """A directory with the module's query and sites and an input, where the commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    rows = [f"{tick * 250_000},web-{tick % 3},{(tick * 37 % 100) / 100}" for tick in range(60)]
    Path("small.py").write_text(request.module.QUERY)
    Path("sites.toml").write_text(request.module.SITES)
    Path("load.csv").write_text("\n".join(["ts,host,load", *rows]))
    return tmp_path
