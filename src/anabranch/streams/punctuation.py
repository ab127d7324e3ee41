"""Punctuation: the knowledge of progress, and its laws.

A punctuation p on a stream says: no later tuple has a timestamp <= p. It never decreases. *complete from C*
says: every tuple of the ideal stream with a timestamp > C, up to the punctuation, is here.

Through an operator the punctuation is the minimum over the inputs. Where branches of one stream rejoin it is
the maximum, but only over the branches that may speak: :class:`Frontier`.
"""

from __future__ import annotations

BEGINNING = -(2**62)
"""Before every timestamp: the punctuation of a stream that has promised nothing, the C of one that has
everything."""

END = 2**62
"""After every timestamp: the punctuation of a finished stream, the C of one of which nothing is known yet."""


def later(time: int, by: int) -> int:
    """``time + by``, where the infinities stay what they are.

    >>> later(10, -3), later(BEGINNING, 5) == BEGINNING, later(END, -5) == END
    (7, True, True)
    """
    return time if time in (BEGINNING, END) else time + by


class Frontier:
    """The punctuation of a stream whose branches rejoin.

    A branch that opened late, or whose replica started late, has not sent everything: its punctuation p only
    says that everything in (C, p] is here. So it may speak once this stream's own punctuation is >= C; until
    then its promises wait.

    >>> f = Frontier()
    >>> f.settle(BEGINNING)                     # the stream starts with everything
    >>> f.hear("rome", BEGINNING, 40)           # a branch that has sent everything: honoured
    True
    >>> f.hear("oslo", 60, 90)                  # sent nothing up to 60: must wait
    False
    >>> f.hear("rome", BEGINNING, 65), f.punctuation     # now oslo may speak as well
    (True, 90)
    """

    def __init__(self) -> None:
        self.complete_from = END
        self.punctuation = BEGINNING
        self._promises: dict[str, tuple[int, int]] = {}

    @property
    def settled(self) -> bool:
        """Whether the stream's own complete_from is known: before that it promises nothing."""
        return self.complete_from != END

    def settle(self, complete_from: int) -> None:
        """The stream is complete from here on: at its start, or behind a gap that nobody can fill."""
        self.complete_from = complete_from
        self.punctuation = max(self.punctuation, complete_from)
        self._advance()

    def restore(self, complete_from: int, punctuation: int) -> None:
        self.complete_from, self.punctuation = complete_from, punctuation

    def hear(self, branch: str, complete_from: int, punctuation: int) -> bool:
        """What ``branch`` promises now; True if the stream's punctuation moved."""
        self._promises[branch] = (complete_from, punctuation)
        if punctuation <= self.punctuation or not self.may_speak(branch):
            return False
        return self._advance()

    def forget(self, branch: str) -> None:
        self._promises.pop(branch, None)

    def may_speak(self, branch: str) -> bool:
        return self.settled and self._promises[branch][0] <= self.punctuation

    def first_complete(self, branches: list[str]) -> int | None:
        """The smallest complete_from among ``branches``, or None while one of them has not told its own."""
        known = [self._promises[b][0] for b in branches if b in self._promises]
        return min(known) if len(known) == len(branches) and known and END not in known else None

    def least_known(self) -> int:
        """The smallest complete_from told so far; END if none."""
        return min((c for c, _ in self._promises.values()), default=END)

    def least_waiting(self) -> int:
        """The smallest complete_from, beyond the punctuation, of a branch whose promise waits; END if none
        does."""
        now = self.punctuation
        return min((c for c, p in self._promises.values() if now < c < END and p > now), default=END)

    def _advance(self) -> bool:
        before = self.punctuation
        while self.settled:
            # One branch's word may give another the right to speak.
            best = max((p for c, p in self._promises.values() if c <= self.punctuation), default=BEGINNING)
            if best <= self.punctuation:
                break
            self.punctuation = best
        return self.punctuation > before
