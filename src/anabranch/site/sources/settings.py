"""Sources that a site fetches itself, as its configuration names them."""

from __future__ import annotations

import msgspec


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


SourceSettings = Files | Replayed
