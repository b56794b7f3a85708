"""Background work in a thread of its own, one job at a time, whose result is fetched later."""

from __future__ import annotations

import atexit
import ctypes
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

__all__ = ["BackgroundJob"]

_LONGEST = 5.0  # s that the end of the process waits for one step of a job in native code
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class _ProcessEnds(BaseException):
    """Raised in the threads of jobs when the process ends; no error, so nothing handles it."""


@atexit.register
def _end_jobs() -> None:
    """Stop the jobs that still run; their results are for nobody any more.

    The interpreter would end their threads in the middle of torch's C++, which cannot be unwound
    there: the process would abort, with a signal for its exit code.
    """
    running = [thread for thread in _threads if thread.is_alive()]
    for thread in running:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_ProcessEnds)
        )
    for thread in running:
        thread.join(_LONGEST)


class BackgroundJob:
    """Runs at most one job; its result waits to be fetched.

    All methods are for one thread, the one that starts jobs. A job that still runs when the process
    ends is stopped where it is.

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
        thread = threading.Thread(target=run, name=self._name, daemon=True)
        thread.start()
        _threads.add(thread)

    def fetch(self) -> Any:
        """Result of a finished job, once, or what it raised; None where none has finished."""
        if self._future is None or not self._future.done():
            return None
        future, self._future = self._future, None
        return future.result()
