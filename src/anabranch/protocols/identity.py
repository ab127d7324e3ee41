"""Who a source's tuples are: timestamp and lineage id for every arrival."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from anabranch.graph import Source
from anabranch.protocols.records import Sequence
from anabranch.streams.batch import Batch, Ints, assemble, ints, timestamps, with_ids
from anabranch.streams.hashing import source_ids
from anabranch.streams.occurrences import Occurrences
from anabranch.types import arrow_schema


class Identify:
    """Gives a source's tuples their ids, by the producer's sequence or by content with multiplicity."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._schema = with_ids(arrow_schema(source.columns))
        self._occurrences = Occurrences(source.name) if source.identity == "content" else None

    def __call__(
        self, producer: str, first: int, rows: Batch, stamp: int | None, promise: int
    ) -> tuple[Batch | None, Batch | None]:
        """Rows with ids: in time, and late (at or behind ``promise``). ``rows``: ``ts`` if the source gives
        it, then the declared columns; ``stamp``: the timestamp of all rows, if the entry point gives it."""
        columns = rows.columns
        if stamp is None:
            ts, columns = ints(columns[0]), columns[1:]
        else:
            ts = np.full(rows.num_rows, stamp, np.int64)
        hi, lo = self._ids(producer, first, ts, columns)
        batch = assemble(ts, hi, lo, columns, self._schema)
        if int(ts.min()) > promise:
            return batch, None
        late = ts <= promise
        return (None if late.all() else batch.filter(pa.array(~late))), batch.filter(pa.array(late))

    def _ids(self, producer: str, first: int, ts: Ints, columns: list[pa.Array]) -> tuple[Ints, Ints]:
        if self._occurrences is None:
            return source_ids(self._source.name, producer, first, len(ts))
        return self._occurrences.ids(ts, columns)

    def remember(self, rows: Batch, punctuation: int) -> None:
        """Rows of the log, after a restart: multiplicities go on from them."""
        if self._occurrences is not None:
            self._occurrences.restore(punctuation, timestamps(rows), rows.columns[3:])

    def forget(self, punctuation: int) -> None:
        """No tuple with a timestamp <= ``punctuation`` will come any more."""
        if self._occurrences is not None:
            self._occurrences.punctuate(punctuation)

    def beyond(self, rows: Batch | None, skip: int, sequence: Sequence) -> Batch | None:
        """Of a peer's rows of ``sequence``, those of its tuples from the ``skip``-th on; late ones are not
        among the rows."""
        if rows is None:
            return None
        _, wanted = source_ids(
            self._source.name,
            sequence.producer,
            sequence.first + skip,
            sequence.until - sequence.first - skip,
        )
        keep = np.isin(ints(rows.column(2)), wanted)
        return rows.filter(pa.array(keep)) if keep.any() else None
