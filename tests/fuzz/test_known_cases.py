"""Cases that failed once, shrunk: those that keep the laws of their class pass; for the others the laws were
mended."""

from pathlib import Path

import pytest

from anabranch.fuzz.case import load
from anabranch.fuzz.check import check
from anabranch.fuzz.laws import lawful

CASES, UNLAWFUL = (sorted((Path(__file__).parent / name).glob("*.json")) for name in ("cases", "unlawful"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_bug_that_was_mended_stays_so(path: Path) -> None:
    case = load(path)
    assert lawful(case)
    assert check(case).findings == ()


@pytest.mark.parametrize("path", UNLAWFUL, ids=lambda path: path.stem)
def test_what_failed_for_a_good_reason_is_against_the_laws(path: Path) -> None:
    case = load(path)
    assert not lawful(case)
    assert check(case).findings
