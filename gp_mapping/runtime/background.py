"""Background work in a thread of its own, one job at a time, whose result is fetched later."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

__all__ = ["BackgroundJob"]


class BackgroundJob:
    """Runs at most one job; its result waits to be fetched.

    All methods are for one thread, the one that starts jobs. The job's thread is a daemon: a job
    that still runs does not keep the process from ending.

    Args:
        name: of the thread, and in the text of errors.
    """

    def __init__(self, name: str):
        self._name = name
        self._future: Future | None = None

    @property
    def idle(self) -> bool:
        """Whether no job runs and no result waits."""
        return self._future is None

    @property
    def running(self) -> bool:
        """Whether a job runs."""
        return self._future is not None and not self._future.done()

    def start(self, job: Callable[[], object]) -> None:
        """Start a job.

        Args:
            job: function whose result, or exception, `fetch` gives.

        Raises:
            RuntimeError: a job runs, or its result waits to be fetched.
        """
        if self._future is not None:
            raise RuntimeError(f"{self._name}: a job runs already")

        future: Future = Future()

        def run() -> None:
            """Do the job in the other thread; its result, or what it raises, goes to the future."""
            try:
                future.set_result(job())
            except BaseException as error:  # `fetch` raises it, whatever it is
                future.set_exception(error)

        self._future = future
        threading.Thread(target=run, name=self._name, daemon=True).start()

    def fetch(self) -> Any:
        """Result of a finished job, once, or what it raised; None where none has finished."""
        if self._future is None or not self._future.done():
            return None
        future, self._future = self._future, None
        return future.result()
