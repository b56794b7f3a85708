"""Threads of the matrix libraries below numpy and scipy, which only the environment can set."""

from __future__ import annotations

import os

__all__ = ["MATRIX_LIBRARIES", "one_thread_each"]

MATRIX_LIBRARIES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def one_thread_each() -> None:
    """Set one thread for each library, where the environment does not set a number.

    It must be called before numpy is loaded. Matrices here have some hundred rows; on a busy
    machine threads that wait for each other turn a millisecond into two seconds. For torch the
    setting `torch_threads` has the number.
    """
    for name in MATRIX_LIBRARIES:
        os.environ.setdefault(name, "1")
