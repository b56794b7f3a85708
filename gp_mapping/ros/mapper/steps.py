"""Long work of a node, cut into steps between which the executor serves its other callbacks.

Such work is a generator. Each `yield` means: call me again a little later. What the work waits for
(a thread, a file, room in a queue) it polls and never sleeps on. Where no executor runs, the same
generator is run to its end by `at_once`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any

from gp_mapping.runtime.background import BackgroundJob

__all__ = ["StepRunner", "Steps", "at_once", "in_thread"]

Steps = Generator[None, None, Any]
PERIOD = 0.005  # s between two steps


def in_thread(function: Callable, *arguments) -> Steps:
    """Run function(*arguments) in a thread of its own, yielding until it ends.

    Returns:
        What the function returns, by `yield from`; an exception of the function is raised there.
    """
    job = BackgroundJob(getattr(function, "__name__", "aside"))
    job.start(lambda: function(*arguments))

    while job.running:
        yield
    return job.fetch()


def at_once(steps: Steps) -> Any:
    """Run all steps in this thread, without an executor, and return what the work returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        time.sleep(PERIOD)


class StepRunner:
    """Runs a node's jobs one after another, one step each PERIOD, in the executor's thread.

    Args:
        node: The node whose executor does the work.
        clock: A steady one: with a simulated clock, work would wait for the first /clock message.
    """

    def __init__(self, node, clock):
        self._jobs: deque[tuple[Steps, Future]] = deque()
        self._timer = node.create_timer(PERIOD, self._turn, clock=clock)

        self._timer.cancel()

    @property
    def busy(self) -> bool:
        """Whether a job runs or waits."""
        return bool(self._jobs)

    def begin(self, steps: Steps) -> Future:
        """Append a job; the Future of what it returns or raises."""
        future: Future = Future()
        self._jobs.append((steps, future))
        self._timer.reset()
        return future

    def finish(self) -> None:
        """Run all remaining jobs in this thread, when no executor runs any more."""
        while self._jobs:
            self._turn()
            time.sleep(PERIOD)

    def _turn(self) -> None:
        """One step of the oldest job; the timer stands still while there is none."""
        if not self._jobs:
            self._timer.cancel()
            return

        steps, future = self._jobs[0]
        try:
            next(steps)
        except StopIteration as end:
            self._jobs.popleft()
            future.set_result(end.value)
        except BaseException as error:  # also SystemExit: the job's future must end in any case
            self._jobs.popleft()
            future.set_exception(error)
