"""Where a named user column stands in a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anabranch.graph import Column
from anabranch.streams.batch import ID_FIELDS


def positions(names: Iterable[str], columns: Sequence[Column]) -> list[int]:
    """The places of ``names`` in batches of ``columns``, ids counted; as in Spark, case does not matter.

    >>> positions(["Ms"], [Column("host", "string"), Column("ms", "double")])
    [4]
    """
    places = {column.name.lower(): i for i, column in enumerate(columns, len(ID_FIELDS))}
    return [places[name.lower()] for name in names]
