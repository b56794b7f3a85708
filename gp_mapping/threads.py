"""Threads of the matrix libraries below numpy and scipy, which no call of theirs sets."""

from __future__ import annotations

import os

__all__ = ["MATRIX_LIBRARIES", "one_thread_each"]

MATRIX_LIBRARIES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def one_thread_each() -> None:
    """Before numpy is loaded: one thread each, where the environment does not say how many.

    Matrices here have some hundred rows. On a busy machine threads that wait for each other make of a millisecond two
    seconds; of torch `torch_threads` says how many.
    """
    for name in MATRIX_LIBRARIES:
        os.environ.setdefault(name, "1")
