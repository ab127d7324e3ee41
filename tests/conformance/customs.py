"""User code for Custom operators under test."""

import pyarrow as pa
import pyarrow.compute as pc


class Poisonous(Exception):
    pass


def shout(rows: pa.RecordBatch) -> pa.RecordBatch:
    """One row for each row."""
    return pa.RecordBatch.from_arrays(
        [pc.utf8_upper(rows.column("g")), rows.column("k")], names=["shouted", "k"]
    )


def split(rows: pa.RecordBatch) -> pa.RecordBatch:
    """As many rows as k says (none for null), at most three; raises where k is negative."""
    made, source = [], []
    for i, k in enumerate(rows.column("k").to_pylist()):
        if k is not None and k < 0:
            raise Poisonous(f"k is {k}")
        for part in range(min(k or 0, 3)):
            made.append(part)
            source.append(i)
    return pa.RecordBatch.from_pydict(
        {"part": pa.array(made, pa.int64()), "_row": pa.array(source, pa.int32())}
    )


class Path:
    """The k of a window's tuples in the order they are merged; tuples with k = 3 cannot be lifted, a path
    through k = 2, 2 not be merged, one of a single k = 1 has no result."""

    def lift(self, row: dict) -> list:
        if row["k"] == 3:
            raise Poisonous("no lift")
        return [row["k"]]

    def merge(self, a: list, b: list) -> list:
        if a[-1] == 2 and b == [2]:
            raise Poisonous("no merge")
        a.extend(b)  # a careless user: the states of other windows must not see it
        return a

    def final(self, state: list) -> dict:
        if state == [1]:
            raise Poisonous("no result")
        return {"path": ",".join(str(k) for k in state), "n": len(state)}
