"""Cases that failed once, shrunk: they keep the laws of their class, and pass."""

from pathlib import Path

import pytest

from anabranch.fuzz.case import load
from anabranch.fuzz.check import check
from anabranch.fuzz.laws import lawful

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_bug_that_was_mended_stays_so(path: Path) -> None:
    case = load(path)
    assert lawful(case)
    assert check(case).findings == ()
