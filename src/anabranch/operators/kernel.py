"""What every Arrow kernel offers: one operator replica, incremental, without I/O.

An engine feeds it batches and punctuations in any order that each input allows, and passes on what it
returns. Time, chance and the outside do not enter: equal streams in, in whatever order and batching, give
equal streams out.
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from anabranch.streams.batch import Batch


class Kernel(Protocol):
    """One operator replica at work.

    ``process`` and ``punctuate`` return the rows that became known, or None. Rows behind the input's own
    punctuation never arrive: the duplicate filter has dropped them.
    """

    schema: pa.Schema
    """Of the rows returned, ids included."""

    historic: bool
    """Whether the output depends on all of history: a replica that starts late then waits (``start`` returns
    END, nothing is emitted, the punctuation stands still) until it restores a snapshot, which is as of the
    punctuation: it holds no tuple behind that."""

    def start(self, complete_from: tuple[int, ...]) -> int:
        """Takes each input's complete_from and returns the output's. Called before the first ``punctuate``,
        and again whenever an input's complete_from has moved; rows may have been processed before. END: not
        known yet."""
        ...

    def process(self, port: int, rows: Batch) -> Batch | None: ...

    def punctuate(self, port: int, p: int) -> Batch | None:
        """Input ``port`` will bring no more rows with a timestamp <= p. Never decreases."""
        ...

    @property
    def punctuation(self) -> int:
        """Of the output, after all that was returned so far: BEGINNING until every input has one."""
        ...

    def snapshot(self) -> bytes:
        """The whole state. Restoring it into a fresh kernel continues exactly here."""
        ...

    def restore(self, snapshot: bytes) -> None: ...
