"""How old tuples are, added up."""

import pyarrow as pa
import pytest

from anabranch.site.ages import age

NOW = 1_760_000_400_000_000


@pytest.mark.parametrize("rows", [1, 100, 100_000])
@pytest.mark.parametrize("old", [0, 1, 250_000, -3, 40_000_000_000_000])
def test_ages_are_exact_where_the_sum_of_the_timestamps_overflows(rows: int, old: int) -> None:
    assert age(pa.record_batch({"_ts": pa.array([NOW - old] * rows, pa.int64())}), NOW) == rows * old
