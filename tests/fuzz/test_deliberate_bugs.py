"""Does the fuzzer find bugs? Each of these is put in on purpose and must be caught within 500 runs.

The ideal run stays as it is: the bug is in the sites only. A case that catches a bug must pass without it.
"""

from collections.abc import Callable
from typing import Any

import pytest

from anabranch.fuzz.case import Case
from anabranch.fuzz.check import check, simulated
from anabranch.fuzz.draw import draw
from anabranch.fuzz.judge import judge
from anabranch.operators.join import JoinKernel
from anabranch.operators.union import UnionKernel
from anabranch.operators.windows import WindowKernel
from anabranch.protocols.outside import OutsideFragment
from anabranch.protocols.records import Writer
from anabranch.protocols.rejoin import Rejoin
from anabranch.streams.batch import Batch, timestamps
from anabranch.streams.duplicates import DuplicateFilter
from anabranch.streams.punctuation import BEGINNING, END, Frontier

RUNS = 500
SEED = 1
Bug = Callable[[pytest.MonkeyPatch], None]


def no_may_speak_rule(patch: pytest.MonkeyPatch) -> None:
    def advance(self: Frontier) -> bool:
        before = self.punctuation
        if self.settled:
            self.punctuation = max(before, *(promise for _, promise in self._promises.values()))
        return self.punctuation > before

    patch.setattr(Frontier, "may_speak", lambda self, branch: self.settled)
    patch.setattr(Frontier, "_advance", advance)


def filter_forgets_on_crash(patch: pytest.MonkeyPatch) -> None:
    def remember(filter: DuplicateFilter, punctuation: int, records: object) -> None:
        filter.punctuate(punctuation)

    patch.setattr("anabranch.protocols.rejoin.remember", remember)


def punctuation_of_one_input_only(patch: pytest.MonkeyPatch) -> None:
    for kernel in (UnionKernel, JoinKernel):
        original = kernel.punctuate

        def punctuate(self: Any, port: int, p: int, original: Any = original) -> None:
            original(self, port, p)
            self.punctuation = self._punctuations[0]

        patch.setattr(kernel, "punctuate", punctuate)


def window_closed_one_tuple_early(patch: pytest.MonkeyPatch) -> None:
    original = WindowKernel.punctuate

    def punctuate(self: WindowKernel, port: int, p: int) -> Batch | None:
        """Takes the last tuple before the punctuation for the punctuation."""
        held = [*self._fresh, *([] if self._kept is None else [self._kept])]
        beyond = [int(t) for rows in held for t in timestamps(rows) if t > p]
        return original(self, port, min(beyond, default=p))

    patch.setattr(WindowKernel, "punctuate", punctuate)


def late_replica_emits_partial_window(patch: pytest.MonkeyPatch) -> None:
    original = WindowKernel.start

    def start(self: WindowKernel, complete_from: tuple[int, ...]) -> int:
        output = original(self, complete_from)
        self._complete_from = BEGINNING
        return output

    patch.setattr(WindowKernel, "start", start)


def union_keeps_ids(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("anabranch.operators.union.union_ids", lambda hi, lo, port: (hi, lo))


def trimming_one_message_too_far(patch: pytest.MonkeyPatch) -> None:
    def trim(self: Writer, behind: int, unread: int = END) -> list[Any]:
        keep = min(self.index.trim_before(behind), unread)
        return list(self.trim_before(min(keep + 1, self.position - 1)))

    patch.setattr(Writer, "trim", trim)


def branch_reopened_at_the_wrong_position(patch: pytest.MonkeyPatch) -> None:
    original = Rejoin._open

    def reopen(self: Rejoin, now: int, reader: Any, source: str) -> Any:
        if reader.position is not None:
            reader.position += 1
        return original(self, now, reader, source)

    patch.setattr(Rejoin, "_open", reopen)


def ranks_ignored_after_eviction(patch: pytest.MonkeyPatch) -> None:
    original = DuplicateFilter.accept

    def accept(self: DuplicateFilter, branch: int, ts: Any, hi: Any, lo: Any) -> int:
        new = original(self, branch, ts, hi, lo)
        self.ranks[branch, -1] -= int((ts <= self.punctuation).sum())
        return new

    patch.setattr(DuplicateFilter, "accept", accept)


def repeated_batch_skipped_by_number_only(patch: pytest.MonkeyPatch) -> None:
    """A new run counts from 0, too."""
    original = OutsideFragment.on_run

    def on_run(self: OutsideFragment, run: str) -> None:
        original(self, run)
        self._batch = max((batch for _, batch in self._taken.values()), default=-1)

    patch.setattr(OutsideFragment, "on_run", on_run)


def checkpoint_always_resumed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("anabranch.sim.engine.misfit", lambda start, checkpoint, generation_before: None)


@pytest.mark.parametrize(
    "bug",
    [
        no_may_speak_rule,
        filter_forgets_on_crash,
        punctuation_of_one_input_only,
        window_closed_one_tuple_early,
        late_replica_emits_partial_window,
        union_keeps_ids,
        trimming_one_message_too_far,
        branch_reopened_at_the_wrong_position,
        ranks_ignored_after_eviction,
        repeated_batch_skipped_by_number_only,
        checkpoint_always_resumed,
    ],
)
def test_a_deliberate_bug_is_caught(bug: Bug) -> None:
    for index in range(RUNS):
        case = draw(SEED, index)
        if _fails(case, bug):
            assert check(case).findings == (), f"case {index} of seed {SEED} fails without the bug, too"
            return
    pytest.fail(f"{bug.__name__} was not caught in {RUNS} runs")


def _fails(case: Case, bug: Bug) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        bug(patch)
        try:
            run = simulated(case)
        except Exception:
            return True
    return judge(case, run) != []
