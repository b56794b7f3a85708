"""The thread that reads and writes files, so that neither map nor callbacks wait for a disk."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

__all__ = ["ClosingError", "FileThread", "QueueFullError"]


class ClosingError(RuntimeError):
    """A job was not begun, because the node is being cleaned up or stopped."""


class QueueFullError(RuntimeError):
    """A job was refused, because too many wait."""


class FileThread:
    """Runs jobs in the order in which they came; at most `size` wait.

    A job whose Future is cancelled before it has begun is not run.

    The thread is a daemon: a disk that never answers (a network folder that is gone) does not keep
    the process from ending.

    Args:
        size: jobs that may wait.
    """

    def __init__(self, size: int = 100):
        self._size = size
        self._jobs: deque[tuple[Callable, Future]] = deque()
        self._changed = threading.Condition()
        self._closed = self._running = False
        self._thread = threading.Thread(target=self._run, name="files", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether a job runs or waits."""
        with self._changed:
            return self._running or bool(self._jobs)

    def submit(self, job: Callable[[], object]) -> Future:
        """Queue a job.

        Args:
            job: function to run in the thread.

        Returns:
            The Future of its result.

        Raises:
            QueueFullError: `size` jobs wait already.
            ClosingError: the thread has been closed.
        """
        future: Future = Future()
        with self._changed:
            if self._closed:
                raise ClosingError("the node is being stopped")
            if len(self._jobs) >= self._size:
                raise QueueFullError(f"{self._size} jobs wait for the disk; ask again later")
            self._jobs.append((job, future))
            self._changed.notify()
        return future

    def close(self, timeout: float) -> bool:
        """Refuse the jobs that have not begun, and wait for the one that has.

        The Futures of refused jobs raise ClosingError.

        Args:
            timeout: seconds to wait.

        Returns:
            Whether nothing runs any more.
        """
        with self._changed:
            self._closed = True
            refused = list(self._jobs)
            self._jobs.clear()
            self._changed.notify()

        for _, future in refused:
            if future.set_running_or_notify_cancel():
                future.set_exception(
                    ClosingError("the node is being stopped, and this had not begun")
                )
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        """Do one job after the other until the thread is closed and none waits."""
        while True:
            with self._changed:
                while not self._jobs and not self._closed:
                    self._changed.wait()
                if not self._jobs:
                    return
                job, future = self._jobs.popleft()
                self._running = True

            try:
                if future.set_running_or_notify_cancel():  # from here on it cannot be cancelled
                    future.set_result(job())
            except BaseException as error:  # the Future raises it, whatever it is
                future.set_exception(error)
            finally:
                with self._changed:
                    self._running = False
