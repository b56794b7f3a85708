"""Work beside the map's thread whose result may come later: one job at a time, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

__all__ = ["Aside"]


class Aside:
    """At most one job runs, and its result waits to be fetched; belongs to the thread that asks.

    The thread is a daemon: a job that still runs does not keep the process from ending.
    """

    def __init__(self, name: str):
        self._name = name
        self._future: Future | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing runs, and no result waits."""
        return self._future is None

    @property
    def running(self) -> bool:
        """Whether a job is being done."""
        return self._future is not None and not self._future.done()

    def start(self, job: Callable[[], object]) -> None:
        """Begin a job; RuntimeError where one runs or waits to be fetched."""
        if self._future is not None:
            raise RuntimeError(f"{self._name}: a job runs already")
        future: Future = Future()

        def run() -> None:
            try:
                future.set_result(job())
            except BaseException as error:  # whoever fetches it gets the reason, whatever it is
                future.set_exception(error)

        self._future = future
        threading.Thread(target=run, name=self._name, daemon=True).start()

    def fetch(self) -> Any:
        """The result, once, or what the job raised; None where nothing is done."""
        if self._future is None or not self._future.done():
            return None
        future, self._future = self._future, None
        return future.result()
