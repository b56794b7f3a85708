"""The workers of a Dask cluster that somebody else has started: asked for, and waited for."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import time

from tqdm import tqdm

from gp_mapping.errors import UsageError, one_line
from gp_mapping.fleet.workers.dashboard import dashboard_text

__all__ = ["RemoteWorkers"]

_ASKED = 5.0  # s between two questions for the workers
_SAID = 60.0  # s between two lines that none is there
_PATIENCE = 3600.0  # s without any worker; where they come from a queue, that may take long


class RemoteWorkers:
    """Workers of a scheduler's.

    Args:
        scheduler: its address, as tcp://host:8786.

    Attributes:
        client: connected to it.
        marks: None, since no folder is common to all of its workers.
        about: one line for a person.

    Raises:
        UsageError: no scheduler answers there.
    """

    marks = None

    def __init__(self, scheduler: str):
        from distributed import Client

        try:
            self.client = Client(scheduler, timeout=10, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise UsageError(
                f"--scheduler {scheduler}: no Dask scheduler answers there ({one_line(error, 300)}); expected "
                "an address as tcp://host:8786"
            ) from error

        self._scheduler = scheduler
        threads = sum(self.client.nthreads().values())
        dashboard = dashboard_text(self.client.dashboard_link or None, here=False)
        self.about = f"{threads} workers of {scheduler}, {dashboard}"
        self._seen = self._asked = (
            time.monotonic()
        )  # when a worker was there, and when that was asked
        self._said = -float("inf")
        self._answer: concurrent.futures.Future | None = None

    def look(self) -> None:
        """Ask from time to time who is there, and say where nobody is.

        Raises:
            UsageError: nobody has been there for an hour.
        """
        now = time.monotonic()
        if self._answer is None and now >= self._asked + _ASKED:
            self._asked = now
            self._answer = asyncio.run_coroutine_threadsafe(
                self._nthreads(), self.client.loop.asyncio_loop
            )
        if self._answer is None or not self._answer.done():
            return  # where the scheduler itself is gone, the client says so

        answer, self._answer = self._answer, None
        if answer.exception() is not None:
            return
        if answer.result():
            self._seen = now
            return

        if now > self._seen + _PATIENCE:
            raise UsageError(
                f"no worker has been at {self._scheduler} for {_PATIENCE / 60:.0f} minutes; begin again where some "
                "are there"
            )
        if now >= self._said + _SAID:
            self._said = now
            tqdm.write(
                f"fleet: no worker is at {self._scheduler}; waiting for one, for {_PATIENCE / 60:.0f} minutes at "
                "the most",
                file=sys.stderr,
            )
            sys.stderr.flush()

    def close(self) -> None:
        """Leave the cluster, which stays."""
        self.client.close()

    async def _nthreads(self) -> dict[str, int]:
        """Threads of each worker, by address."""
        return await self.client.scheduler.ncores(workers=None)
