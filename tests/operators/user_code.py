"""User code that goes wrong in every way."""

import pyarrow as pa


def too_few(rows):
    return pa.RecordBatch.from_pydict({"y": pa.array([1] * (rows.num_rows // 2))})


def not_a_number(rows):
    return pa.RecordBatch.from_pydict({"y": pa.array([g or "1" for g in rows.column("g").to_pylist()])})


def outside(rows):
    return pa.RecordBatch.from_pydict({"y": [1], "_row": [rows.num_rows]})


def nothing(rows):
    return pa.RecordBatch.from_pydict({"y": pa.array([], pa.int64()), "_row": pa.array([], pa.int64())})


def backwards(rows):
    n = rows.num_rows
    return pa.RecordBatch.from_pydict({"y": list(range(n)) * 2, "_row": list(range(n))[::-1] * 2})


class NoFinal:
    def lift(self, row): ...
    def merge(self, a, b): ...


class WrongType:
    def lift(self, row):
        return row["k"]

    def merge(self, a, b):
        return a + b

    def final(self, state):
        return {"y": state if state < 10 else "ten"}


class NoSevens(WrongType):
    def lift(self, row):
        if row["k"] == 7:
            raise ValueError("seven")
        return row["k"]
