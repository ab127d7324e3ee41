"""The case file: read by people, replayed to the bit, and refused in a sentence where it is wrong."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.fuzz.case import Case, CaseError, from_json, load, save, to_json
from anabranch.fuzz.draw import draw


def small() -> Case:
    return next(case for case in (draw(2, index) for index in range(99)) if "load" in _columns(case))


def _columns(case: Case) -> list[str]:
    return [column.name for column in case.graph.sources[0].columns]


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    written = json.loads(to_json(small()))
    change(written)
    return json.dumps(written).encode()


@given(st.lists(st.none() | st.floats(width=64), max_size=5))
def test_doubles_come_back_to_the_bit(values: list[float | None]) -> None:
    def put(written: dict[str, Any]) -> None:
        columns = {name: [None] * len(values) for name in _columns(case)}
        columns["load"] = [v if v is None or math.isfinite(v) else str(v) for v in values]
        written["inputs"]["source1"] = {"ts": list(range(len(values))), **columns}

    case = small()
    again = from_json(changed(put)).inputs["source1"]["load"].to_pylist()
    written = from_json(to_json(from_json(changed(put)))).inputs["source1"]["load"].to_pylist()
    for read in (again, written):
        assert [v if v is None else v.hex() for v in read] == [v if v is None else v.hex() for v in values]


def test_a_file_holds_a_case(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "case.json"
    case = small()
    save(case, path)
    assert to_json(load(path)) == to_json(case)
    assert all(isinstance(table, pa.Table) for table in load(path).inputs.values())


@pytest.mark.parametrize(
    ("data", "fragment"),
    [
        (b"", "is not a case"),
        (b"\xff\xfe", "is not a case"),
        (b"[]", "Expected `object`"),
        (changed(lambda w: w.pop("plan")), "`plan`"),
        (changed(lambda w: w.update(klass="mild")), "$.klass"),
        (changed(lambda w: w.update(extra=1)), "extra"),
        (changed(lambda w: w["inputs"].clear()), "lack the source 'source1'"),
        (changed(lambda w: w["inputs"].update(other={"ts": []})), "'other', which is no source"),
        (changed(lambda w: w["inputs"]["source1"].pop("ts")), "column 'ts' is missing"),
        (changed(lambda w: w["inputs"]["source1"].update(other=[])), "column 'other' is not declared"),
        (changed(lambda w: w["inputs"]["source1"]["ts"].append(1)), "differ in length"),
        (changed(lambda w: w["inputs"]["source1"].update(ts=["now"])), "column 'ts'"),
        (changed(lambda w: w["inputs"]["source1"].update(load=["much"])), "column 'load'"),
        (changed(lambda w: w["faults"].append({"type": "Flood"})), "$.faults"),
    ],
)
def test_what_is_no_case_is_refused_in_a_sentence(data: bytes, fragment: str) -> None:
    with pytest.raises(CaseError, match=r"^here.*") as caught:
        from_json(data, "here")
    assert fragment in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match=r"nowhere\.json cannot be read"):
        load(tmp_path / "nowhere.json")
