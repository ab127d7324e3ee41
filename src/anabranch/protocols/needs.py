"""What is still needed of the streams that a fragment consumes: by the windows between them and its exports,
as far back from what each export must yet yield."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.protocols.egress import Egress
from anabranch.streams.punctuation import END, later


class Needs:
    """``spans``: for each (stream, export), the longest sum of windows on a way between them."""

    def __init__(self, egresses: dict[str, Egress], spans: dict[tuple[str, str], int]) -> None:
        self._egresses = egresses
        self._spans = spans

    def of(self, stream: str, here: bool) -> int:
        """Timestamps of ``stream`` up to this one are no longer needed, neither to go on nor to rebuild.

        ``here``: in this site's ingress log, from which the fragment is rebuilt after a crash up to where its
        own egress ends; otherwise upstream, in case this site loses its log and must satisfy only its
        consumers.
        """
        if here:
            return self.least(stream, lambda egress: min(egress.needed_from, egress.durable))
        return self.least(stream, lambda egress: egress.needed_from)

    def least(self, stream: str, needed: Callable[[Egress], int]) -> int:
        """What the exports that depend on ``stream`` need of it: what is ``needed`` of each, and further back
        by the windows on the way."""
        least = END
        for export, egress in self._egresses.items():
            if (stream, export) in self._spans:
                least = min(least, later(needed(egress), -self._spans[stream, export]))
        return least
