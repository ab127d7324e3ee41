"""Worker processes that may die or hang: what each was at is known, and another takes its place.

Results come back as they are ready. Each worker holds the next task already while it works on one, so that it
never waits for this process.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, NamedTuple, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

AHEAD = 2
"""Tasks that a worker holds at once: the one it works on and the next."""
PATIENCE = 1.0


class Lost(NamedTuple):
    """In place of a result: the worker died at the task, or was stopped because it took too long."""

    reason: str


def in_processes(
    work: Callable[[Task], Result], tasks: Sequence[Task], workers: int, limit: float
) -> Iterator[tuple[Task, Result | Lost]]:
    """Every task with what ``work`` returned for it, or Lost. ``limit``: seconds a task may take. ``work`` is
    called in fresh processes, which import it by name."""
    waiting = deque(tasks)
    crew: list[_Worker[Task, Result]] = []
    try:
        while waiting or any(worker.tasks for worker in crew):
            while waiting and len(crew) < workers:
                crew.append(_Worker(work))
            for worker in crew:
                while waiting and len(worker.tasks) < AHEAD and worker.hand(waiting[0]):
                    waiting.popleft()
            wait([worker.pipe for worker in crew], timeout=PATIENCE)
            for worker in list(crew):
                yield from worker.results()
                reason = worker.lost(limit)
                if reason is not None:
                    crew.remove(worker)
                    worker.stop()
                    waiting.extendleft(reversed(list(worker.tasks)[1:]))
                    if worker.tasks:
                        yield worker.tasks[0], Lost(reason)
    finally:
        for worker in crew:
            worker.stop()


class _Worker(Generic[Task, Result]):
    def __init__(self, work: Callable[[Task], Result]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.tasks: deque[Task] = deque()
        self._process = context.Process(target=_serve, args=(work, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._ready = False
        self._since = time.monotonic()
        self._broken = False

    def hand(self, task: Task) -> bool:
        """Gives it one more task; False if it is gone."""
        try:
            self.pipe.send(task)
        except OSError:
            self._broken = True
            return False
        if not self.tasks:
            self._since = time.monotonic()
        self.tasks.append(task)
        return True

    def results(self) -> Iterator[tuple[Task, Result]]:
        try:
            while self.pipe.poll():
                result = self.pipe.recv()
                self._since = time.monotonic()
                if self._ready:
                    yield self.tasks.popleft(), result
                self._ready = True
        except (EOFError, OSError):
            self._broken = True

    def lost(self, limit: float) -> str | None:
        """Why nothing more is to be expected of it; None as long as something is."""
        if self._broken or not self._process.is_alive():
            self._process.join(PATIENCE)
            return f"the process died (exit status {self._process.exitcode})"
        if self.tasks and self._ready and time.monotonic() - self._since > limit:
            return f"the run took longer than {limit:g} s"
        return None

    def stop(self) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _serve(work: Callable[[Any], Any], pipe: Connection) -> None:
    """In the worker: first a word that all is imported, then one result a task."""
    try:
        pipe.send(None)
        while True:
            pipe.send(work(pipe.recv()))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return
