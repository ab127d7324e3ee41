"""Where a site delivers results itself, as its configuration names it. ``application`` is a subscription of
the plan: the sites keep what it has not received."""

from __future__ import annotations

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


SinkSettings = Parquet | Console
