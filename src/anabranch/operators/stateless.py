"""What kernels that remember nothing have in common: only the punctuation passes through them."""

from __future__ import annotations

import msgspec

from anabranch.operators.state import pack, unpack
from anabranch.streams.punctuation import BEGINNING


class Progress(msgspec.Struct, frozen=True):
    punctuation: int


class Stateless:
    """One input; every row yields its rows at once."""

    historic = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.punctuation = BEGINNING

    def start(self, complete_from: tuple[int, ...]) -> int:
        return complete_from[0]

    def punctuate(self, port: int, p: int) -> None:
        self.punctuation = p

    def snapshot(self) -> bytes:
        return pack(self.name, Progress(self.punctuation), ())

    def restore(self, snapshot: bytes) -> None:
        state, _ = unpack(snapshot, self.name, Progress, ())
        self.punctuation = state.punctuation
