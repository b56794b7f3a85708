"""Threads of matrix libraries, which only the environment can set; exceptions that end a thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

__all__ = ["MATRIX_LIBRARIES", "contained", "ends_process", "one_thread_each"]

MATRIX_LIBRARIES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def one_thread_each() -> None:
    """Set one thread for each library, where the environment does not set a number.

    It must be called before numpy is loaded. Matrices here have some hundred rows; on a busy
    machine threads that wait for each other turn a millisecond into two seconds. For torch the
    setting `torch_threads` has the number.
    """
    for name in MATRIX_LIBRARIES:
        os.environ.setdefault(name, "1")


def ends_process(error: BaseException) -> bool:
    """Whether an exception is to end the process, so that nobody may handle it.

    Python raises what a signal asks for in the main thread alone: a SystemExit or KeyboardInterrupt
    of another thread is a fault of the code that it runs, as a model of a user that calls exit().
    """
    if isinstance(error, Exception):
        return False
    return threading.current_thread() is threading.main_thread() or not isinstance(
        error, SystemExit | KeyboardInterrupt
    )


class contained:
    """A block from which no exception leaves, unless it is to end the process.

    For code of other packages, which may raise anything: `with contained(handle): …`.

    Args:
        handle: called with the exception, while it is being handled.
    """

    def __init__(self, handle: Callable[[BaseException], object]):
        self._handle = handle

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind, error: BaseException | None, traceback) -> bool:
        if error is None or ends_process(error):
            return False
        self._handle(error)
        return True
