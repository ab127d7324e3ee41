"""Sources that a site fetches itself, as its configuration names them."""

from __future__ import annotations

import msgspec

from anabranch.graph import Source


class Files(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="files", tag_field="kind"):
    """The files of ``directory``, in the order of their names, looked for every ``poll`` seconds. ``source``
    must have identity "partition" and bring its own timestamps."""

    source: str
    directory: str
    poll: float = 0.5


class Replayed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="replay", tag_field="kind"):
    """The rows of the file ``path``, each at its time, ``speed`` times as fast as its times say."""

    source: str
    path: str
    speed: float = 1.0


class FromSpark(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="spark", tag_field="kind"):
    """Any streaming source of Spark's. ``format``, ``options``, ``schema`` as Spark has them; ``format`` may
    also be a data source in Python, as ``package.module:Class``. ``select``: expressions that yield the
    source's columns and those named here; ``timestamp``: the column with the timestamp.

    ``id``: the columns that say which tuple a row is, a partition and, unless the order in which Spark reads
    does, a number within it. ``partitions``: those that run side by side, by name or from 0; unless given
    they follow each other. ``begin``: the number of the first row, of all partitions or of each. Without
    ``id`` the first entry point alone reads it. ``every``: seconds between two looks."""

    source: str
    format: str
    options: dict[str, str] = {}
    schema: str | None = None
    select: tuple[str, ...] = ()
    id: tuple[str, ...] = ()
    partitions: int | tuple[str, ...] | None = None
    begin: int | dict[str, int] = 0
    timestamp: str = "ts"
    every: float = 0.2

    @property
    def names(self) -> tuple[str, ...] | None:
        """Of the partitions that run side by side."""
        if isinstance(self.partitions, int):
            return tuple(map(str, range(self.partitions)))
        return self.partitions

    def first(self, partition: str) -> int:
        """The number of its first row."""
        return self.begin if isinstance(self.begin, int) else self.begin.get(partition, 0)

    def problem(self) -> str | None:
        """Why it cannot be, if it cannot."""
        names = self.names
        if not self.format:
            return "format is empty; name one of Spark's, such as 'kafka', or package.module:Class"
        if len(self.id) > 2:
            return f"id names {len(self.id)} columns; write a partition and a number within it"
        if names is not None and len(self.id) != 2:
            return "partitions that run side by side need both columns of id, a partition and a number"
        if names is not None and (not names or len(set(names)) < len(names)):
            return "partitions must name at least one, and each once"
        if self.begin != 0 and names is None:
            return "begin is for partitions that run side by side; name them in partitions"
        if isinstance(self.begin, dict) and names is not None and set(self.begin) - set(names):
            unknown = min(set(self.begin) - set(names))
            return (
                f"begin names a partition {unknown!r} that partitions does not; there are {', '.join(names)}"
            )
        if self.every <= 0:
            return f"every is {self.every}; it must be more than 0 seconds"
        return None

    def misfit(self, source: Source) -> str | None:
        """Why it cannot bring the tuples of ``source``, if it cannot."""
        if self.id and (source.identity != "partition" or source.timestamps != "source"):
            return (
                f"id lets every entry point read it by itself; define source {source.name!r} with "
                'identity="partition" and timestamps="source", or leave id out'
            )
        if not self.id and source.identity != "sequence":
            return (
                f'source {source.name!r} has identity="{source.identity}", which needs id, the columns that '
                'say which tuple a row is; without id define it with identity="sequence"'
            )
        return None


SourceSettings = Files | Replayed | FromSpark


def readers(settings: SourceSettings, entries: tuple[str, ...]) -> tuple[str, ...]:
    """The sites that fetch it, of the entry points: one alone, where nothing tells what it has read from what
    another one has."""
    alone = isinstance(settings, FromSpark) and not settings.id
    return entries[:1] if alone else entries
