"""Where a site delivers results itself, as its configuration names it. ``application`` is a subscription of
the plan: the sites keep what it has not received."""

from __future__ import annotations

from typing import Literal

import msgspec


class Parquet(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="parquet", tag_field="kind"):
    """Files in ``directory``, each tuple in one of them. One is written every ``every`` seconds, or earlier
    when ``rows`` wait, and holds whole timestamps only."""

    application: str
    directory: str
    every: float = 10.0
    rows: int = 100_000


class Console(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="console", tag_field="kind"):
    """JSON lines on the standard output of the site's agent. What was on its way in a crash may be missing or
    come twice."""

    application: str


class ToSpark(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="spark", tag_field="kind"):
    """Numbered batches, written by Spark: ``format``, ``options`` and ``mode`` as Spark has them; ``format``
    may also be a data source in Python, or a function of (frame, batch, options), as
    ``package.module:name``. ``{batch}`` in ``options`` and ``select`` is the batch's number, always the same
    for the same rows. ``select``: expressions instead of all columns. A batch is cut every ``every`` seconds,
    or earlier when ``rows`` wait, and holds whole timestamps only."""

    application: str
    format: str
    options: dict[str, str] = {}
    mode: Literal["append", "overwrite", "ignore", "error"] = "append"
    select: tuple[str, ...] = ()
    every: float = 10.0
    rows: int = 100_000

    def problem(self) -> str | None:
        """Why it cannot be, if it cannot."""
        if not self.format:
            return "format is empty; name one of Spark's, such as 'parquet', or package.module:name"
        if self.mode == "overwrite" and ":" not in self.format and not self._numbered:
            return (
                'mode is "overwrite", so each batch would replace the one before; write {batch} into an '
                "option, such as the path"
            )
        if self.every <= 0:
            return f"every is {self.every}; it must be more than 0 seconds"
        if self.rows < 1:
            return f"rows is {self.rows}; it must be at least 1"
        return None

    @property
    def _numbered(self) -> bool:
        return any("{batch}" in value for value in self.options.values())


SinkSettings = Parquet | Console | ToSpark
