"""Work of a node that takes long, as steps: between two of them its executor serves everybody else.

Such work is a generator. Each `yield` says: call me again a little later; what it waits for (a thread, a file, room in
a queue) it looks at and never sleeps on. The same work can be done at once, where no executor turns.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any

from gp_mapping.runtime.aside import Aside

__all__ = ["StepRunner", "Steps", "aside", "at_once"]

Steps = Generator[None, None, Any]
PERIOD = 0.005  # s between two steps


def aside(function: Callable, *arguments) -> Steps:
    """function(*arguments) in a thread of its own; its result, or what it raises, by `yield from`."""
    job = Aside(getattr(function, "__name__", "aside"))
    job.start(lambda: function(*arguments))
    while job.running:
        yield
    return job.fetch()


def at_once(steps: Steps) -> Any:
    """All steps here and now; what the work returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        time.sleep(PERIOD)


class StepRunner:
    """Works a node's jobs off one after another, a step each PERIOD, in the executor's thread.

    clock: a steady one, since nobody shall wait for a /clock.
    """

    def __init__(self, node, clock):
        self._jobs: deque[tuple[Steps, Future]] = deque()
        self._timer = node.create_timer(PERIOD, self._turn, clock=clock)
        self._timer.cancel()

    @property
    def busy(self) -> bool:
        """Whether a job is being done or waits."""
        return bool(self._jobs)

    def begin(self, steps: Steps) -> Future:
        """Have it done after those that wait already; the Future of what it returns or raises."""
        future: Future = Future()
        self._jobs.append((steps, future))
        self._timer.reset()
        return future

    def finish(self) -> None:
        """All that is left, here and now: no executor turns any more."""
        while self._jobs:
            self._turn()
            time.sleep(PERIOD)

    def _turn(self) -> None:
        if not self._jobs:
            self._timer.cancel()
            return
        steps, future = self._jobs[0]
        try:
            next(steps)
        except StopIteration as end:
            self._jobs.popleft()
            future.set_result(end.value)
        except BaseException as error:  # whoever waits for it gets the reason, whatever it is
            self._jobs.popleft()
            future.set_exception(error)
