"""Worker processes on this machine: started, and started again where they die.

Each has a nanny in this process, which starts it again when it has died. But Dask gives a nanny up
whose worker is away at the moment 15 s after a death, back in between or not, and one whose first
worker dies while it starts; nobody then starts another. So here a nanny may take its time, who is
missing is looked at while somebody waits, and nannies that have ended are replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path

from tqdm import tqdm

from gp_mapping.errors import UsageError, one_line
from gp_mapping.fleet.workers.dashboard import dashboard_text
from gp_mapping.fleet.workers.forked import can_fork, start_loaded
from gp_mapping.store.scratch.own_folder import OwnFolder
from gp_mapping.threads import MATRIX_LIBRARIES

__all__ = ["LocalWorkers"]

_STARTS = 5  # that fail, for each worker asked for and without one that succeeds, before it is over
_PAUSE = 1.0  # s before the next start, where one has failed
_START_TIME = 300.0  # s that a start may take
_AWAY = 15.0  # s without a process, after which a nanny has forgotten to start one
_BEGIN = 30.0  # s to wait for all workers at the beginning, where some are there
_SAID = 30.0  # s between two lines about workers that have died
# deaths that Dask itself counts; it blames steps that only waited there, so deaths.py counts,
# but for a step that kills whoever reads its arguments
_DASK_DEATHS = 100
_THREADS = ("OMP_NUM_THREADS", *MATRIX_LIBRARIES)  # matrices of a few hundred rows: one thread


@dataclass
class _Starts:
    """Starts of workers so far.

    Attributes:
        begun: all of them.
        in_a_row: those since a worker last came up.
        why: what the last failure said; '' where the process was gone without a word.
    """

    begun: int = 0
    in_a_row: int = 0
    why: str = ""


class LocalWorkers:
    """A Dask cluster of processes on this machine.

    Args:
        workers: how many there shall be, of one thread each.

    Attributes:
        client: connected to them.
        marks: folder for files of this run.
        about: one line for a person.

    Raises:
        UsageError: not one of them can be started.
    """

    def __init__(self, workers: int):
        self.asked, self._starts = workers, _Starts()
        self._said, self._said_deaths = -float("inf"), 0
        self._without: dict = {}  # since when a nanny has no process, by name
        self._ending = contextlib.ExitStack()
        try:
            self._begin()
        except BaseException:
            self._ending.close()
            raise

    def _begin(self) -> None:
        """Start the cluster, and wait for its workers."""
        import dask
        from distributed import Client, LocalCluster

        # a worker that is started again is no news; that one could not be, `look` says
        for name in ("distributed", "tornado.application", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL)

        own = OwnFolder(Path(tempfile.gettempdir()), "gp_mapping_fleet")
        self._ending.callback(own.remove)
        folder, bokeh = str(own.path), importlib.util.find_spec("bokeh")
        self.marks = own.path / "marks"
        self.marks.mkdir()
        environment = dict.fromkeys(_THREADS, "1")
        environment_of_python = {
            **environment,
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        }

        # until the end, since nannies that come later read it, too
        self._ending.enter_context(
            dask.config.set(
                {
                    "distributed.scheduler.allowed-failures": _DASK_DEATHS,
                    "distributed.deploy.lost-worker-timeout": "1000d",
                    "distributed.worker.profile.enabled": False,  # it looks a hundred times a second
                    "distributed.nanny.environ": environment,
                    # without Dask's MALLOC_TRIM_THRESHOLD_, by which each matrix is allocated anew,
                    # page by page
                    "distributed.nanny.pre-spawn-environ": environment,
                    "temporary-directory": folder,
                    "distributed.worker.multiprocessing-method": "forkserver"
                    if can_fork()
                    else "spawn",
                }
            )
        )

        with _signals_collected() as signals:
            if can_fork():
                start_loaded(environment_of_python)
            self.cluster = LocalCluster(
                n_workers=0,  # a start that fails would end a cluster that begins with workers
                threads_per_worker=1,
                memory_limit=1.0 / self.asked,
                processes=True,
                worker_class=_counted(self._starts, self.asked),
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0" if bokeh else None,
                local_directory=folder,
                silence_logs=logging.CRITICAL,
                death_timeout=_START_TIME,
                env=environment_of_python,
            )
            self._ending.callback(self.cluster.close)
            self.client = Client(self.cluster, set_as_default=False)
            self._ending.callback(self.client.close)

        if threading.current_thread() is threading.main_thread():
            before = signal.signal(signal.SIGTERM, _interrupted)
            self._ending.callback(signal.signal, signal.SIGTERM, before)
        if signals:
            # the first of the signals that came meanwhile
            _interrupted(signals[0], None)

        self.cluster.scale(self.asked)
        begun = time.monotonic()
        while self.at_work < self.asked and not (
            self.at_work and time.monotonic() > begun + _BEGIN
        ):
            self.look()
            time.sleep(0.02)

        # in this process it is drawn on a thread of its own, which answers meanwhile
        address = self.cluster.dashboard_link if bokeh else None
        self.about = f"{self.asked} workers, {dashboard_text(address, here=True)}"

    @property
    def at_work(self) -> int:
        """Workers that are at work now."""
        return len(self.cluster.scheduler.workers)

    @property
    def died(self) -> int:
        """Workers that have died so far: each start beyond those asked for is for one."""
        return max(0, self._starts.begun - self.asked)

    def look(self) -> None:
        """Replace who is missing, and say so from time to time.

        Raises:
            UsageError: none is there, and none can be started.
        """
        # a nanny that has ended starts nothing any more: it loses its name, and Dask takes it away
        over = [n for n, nanny in list(self.cluster.workers.items()) if self._over(n, nanny)]
        for name in over:
            self.cluster.worker_spec.pop(name, None)
        # only then another one comes: Dask may give it the same name, and where the ended one still
        # has that, none is missing and nothing is done
        spec = set(self.cluster.worker_spec)
        if spec != set(self.cluster.workers):
            self.cluster.scale(len(spec))
        elif len(spec) < self.asked:
            self.cluster.scale(self.asked)

        if not self.at_work and self._starts.in_a_row > _STARTS * self.asked:
            why = self._starts.why or "each was gone at once, as where memory does not suffice"
            raise UsageError(
                f"no worker can be started: {self._starts.in_a_row - 1} died one after the other while they "
                f"started ({why}); free memory, or write --workers 1, which needs none beside this process"
            )
        self._say()

    def _over(self, name, nanny) -> bool:
        """Whether a nanny starts no worker any more.

        It has ended; or its worker died just after its start, when nobody heeded it.
        """
        from distributed.core import Status

        if nanny.status in (Status.closed, Status.failed):
            return True
        if nanny.is_alive():
            self._without.pop(name, None)
            return False
        return time.monotonic() > self._without.setdefault(name, time.monotonic()) + _AWAY

    def _say(self) -> None:
        """One line of workers that have died since the last one; not with each death."""
        now = time.monotonic()
        if self.died > self._said_deaths and now >= self._said + _SAID:
            self._said, self._said_deaths = now, self.died
            tqdm.write(
                f"fleet: {self.at_work} of {self.asked} workers at work; {self.died} died so far, and others are "
                "started in their place",
                file=sys.stderr,
            )
            sys.stderr.flush()

    def close(self) -> None:
        """End all of them."""
        self._ending.close()


def _counted(starts: _Starts, asked: int) -> type:
    """The class of nannies whose starts are counted, with a pause where so many have failed."""
    from distributed import Nanny
    from distributed.core import Status

    class Counted(Nanny):
        """A nanny whose starts are counted."""

        async def instantiate(self) -> Status:
            """Start the worker process, after a pause where so many starts have failed."""
            if starts.in_a_row >= asked:
                await asyncio.sleep(_PAUSE)

            starts.begun += 1
            starts.in_a_row += 1
            try:
                status = await super().instantiate()
            except Exception as error:
                starts.why = one_line(error, 300)
                raise
            if status == Status.running:
                starts.in_a_row, starts.why = 0, ""
            return status

    return Counted


@contextlib.contextmanager
def _signals_collected() -> Iterator[list[int]]:
    """Collect signals to end that come meanwhile, since half a cluster cannot be closed.

    The workers never get a Ctrl-C, which a terminal sends to them as well: this process ends them.

    Yields:
        The numbers of the signals so far.
    """
    signals: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return

    handled = (signal.SIGINT, signal.SIGTERM)
    before = {n: signal.signal(n, lambda number, _: signals.append(number)) for n in handled}
    resource_tracker.ensure_running()  # begun later, it would take the mask away
    # threads and processes that begin now have the mask, too
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    try:
        yield signals
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # a blocked signal arrives here
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupted(number: int, _) -> None:
    """End in order: SystemExit with the shell's code after SIGTERM, else KeyboardInterrupt."""
    if number == signal.SIGTERM:
        raise SystemExit(128 + number)
    raise KeyboardInterrupt
