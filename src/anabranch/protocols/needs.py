"""What is still needed of the streams that a fragment consumes: by the windows between them and its exports,
as far back from what each export must yet yield."""

from __future__ import annotations

from collections.abc import Callable, Set

from anabranch.protocols.egress import Egress
from anabranch.streams.punctuation import END, later


class Needs:
    """``spans``: for each (stream, export), the longest sum of windows on a way between them."""

    def __init__(self, egresses: dict[str, Egress], spans: dict[tuple[str, str], int]) -> None:
        self._egresses = egresses
        self._spans = spans

    def here(self, stream: str) -> int:
        """Timestamps of ``stream`` up to this one are no longer needed in this site's ingress log, from which
        the fragment is rebuilt after a crash up to where its own egress ends."""
        return self._least(stream, lambda egress: min(egress.needed_from, egress.durable))

    def upstream(self, stream: str) -> int:
        """The same upstream, in case this site loses its log and must satisfy only its consumers."""
        return self._least(stream, lambda egress: egress.needed_from)

    def to_start(self, stream: str, absent: Callable[[str], Set[str]]) -> int:
        """Complete from here is good enough for ``stream`` to start: as upstream, where ``absent`` consumers
        of an export are not waited for."""
        return self._least(stream, lambda egress: egress.needed_without(absent(egress.stream)))

    def _least(self, stream: str, needed: Callable[[Egress], int]) -> int:
        least = END
        for export, egress in self._egresses.items():
            if (stream, export) in self._spans:
                least = min(least, later(needed(egress), -self._spans[stream, export]))
        return least
