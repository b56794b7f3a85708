"""Where the steps of a fleet run: in this process, or on the workers of a Dask cluster.

A step is a function without side effects, so one that is lost with its worker is done again, and
nothing changes. Sums are formed in a fixed binary tree: the same numbers in the same order,
whatever the number of workers.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from multiprocessing import resource_tracker
from typing import Any

from tqdm import tqdm

from gp_mapping.errors import UsageError, UserError, one_line
from gp_mapping.threads import MATRIX_LIBRARIES

__all__ = ["Cluster", "Engine", "Here", "Lost", "connected"]

_DEATHS = 10  # workers that may die over one step, before the step counts as what kills them
_THREADS = ("OMP_NUM_THREADS", *MATRIX_LIBRARIES)  # matrices of a few hundred rows: one thread
_MISSING = (
    "the Python package 'distributed' is not installed, and bags go to several workers by it; write: pip "
    "install 'gp_mapping[fleet]', or --workers 1, which needs no workers beside this process"
)


class Lost(UserError):
    """A step that could not be done anywhere."""


class Engine(ABC):
    """Takes steps and gives handles, which may be arguments of later steps and give results.

    Attributes:
        about: one line for a person, of where the steps run.
    """

    about = ""

    def __init__(self) -> None:
        self._numbers = count()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    @abstractmethod
    def step(self, name: str, call: Callable, *arguments) -> Any:
        """A handle of call(*arguments).

        Args:
            name: a word for what the step does.
            call: a function without side effects.
            arguments: values, or handles of other steps.
        """

    @abstractmethod
    def finished(self, handles: list) -> Iterator[int]:
        """The indices of handles in the order in which they are done, or have failed."""

    @abstractmethod
    def result(self, handle) -> Any:
        """The value of a step.

        Raises:
            Lost: its workers died. Whatever the step itself raised comes as it is.
        """

    @abstractmethod
    def close(self) -> None:
        """End; no step follows."""

    def each(self, name: str, call: Callable, *columns: Iterable) -> list:
        """A handle of call(*row) for each row of the columns."""
        return [self.step(name, call, *row) for row in zip(*columns, strict=True)]

    def tree(self, name: str, join: Callable, handles: list) -> Any:
        """A handle of all of them joined in pairs: of n steps ⌈log₂ n⌉ follow one another."""
        while len(handles) > 1:
            pairs = [self.step(name, join, a, b) for a, b in zip(handles[::2], handles[1::2])]
            handles = pairs + (handles[-1:] if len(handles) % 2 else [])
        return handles[0]

    def results(self, handles: list, label: str = "") -> Iterator[Any]:
        """The results in turn, with one of them in this process at a time.

        Args:
            handles: of steps.
            label: of a progress bar on stderr; '' for none.

        Yields:
            The result of each handle, in their order.
        """
        if label:
            with tqdm(
                total=len(handles), desc=label, file=sys.stderr, mininterval=0.3, disable=None
            ) as bar:
                for _ in self.finished(handles):
                    bar.update(1)

        for handle in handles:
            yield self.result(handle)


class Here(Engine):
    """Steps in this process, one after the other."""

    about = "1 worker: this process"

    def step(self, name: str, call: Callable, *arguments) -> Any:
        return _Kept(call, *arguments)

    def finished(self, handles: list) -> Iterator[int]:
        for i, handle in enumerate(handles):
            self.result(handle)
            yield i

    def result(self, handle) -> Any:
        return handle.value

    def close(self) -> None:
        return


class _Kept:
    """A step that is done when its value is needed first."""

    def __init__(self, call: Callable, *arguments):
        self._call, self._arguments = call, arguments

    @functools.cached_property
    def value(self) -> Any:
        """The value, and from then on no longer the arguments; a step that failed keeps them."""
        value = self._call(*(a.value if isinstance(a, _Kept) else a for a in self._arguments))
        self._arguments = ()
        return value


class Cluster(Engine):
    """Steps on a Dask cluster; `close` ends cluster and client where they were made here.

    Args:
        client: a connected distributed.Client.
        about: as of an Engine.
        closing: called at the end.
    """

    def __init__(self, client, about: str, closing: Callable[[], None]):
        super().__init__()
        self.client, self.about, self._closing = client, about, closing
        self._run = uuid.uuid4().hex  # keys of several runs on one scheduler differ

    def step(self, name: str, call: Callable, *arguments) -> Any:
        key = f"{name}-{self._run}-{next(self._numbers)}"
        return self.client.submit(call, *arguments, key=key, pure=True)

    def finished(self, handles: list) -> Iterator[int]:
        from distributed import as_completed

        places: dict[str, list[int]] = {}
        for i, handle in enumerate(handles):
            places.setdefault(handle.key, []).append(i)

        # a step may have been given twice: it is awaited once
        for handle in as_completed(
            list({h.key: h for h in handles}.values()), loop=self.client.loop
        ):
            yield from places[handle.key]

    def result(self, handle) -> Any:
        from distributed import CancelledError
        from distributed.scheduler import KilledWorker

        try:
            return handle.result()
        except KilledWorker as error:
            raise Lost(
                f"{_DEATHS} workers died over it, as where memory does not suffice ({one_line(error, 200)})"
            ) from error
        except CancelledError as error:
            raise UsageError(
                f"the workers are gone ({self.about}); begin again where they are there"
            ) from error

    def close(self) -> None:
        self._closing()


def connected(workers: int | None, scheduler: str | None = None) -> Engine:
    """The engine for some options of the command line.

    Args:
        workers: processes on this machine, of one thread each; one is this process. None with a
            scheduler.
        scheduler: address of a running Dask scheduler, as tcp://host:8786.

    Raises:
        UsageError: Dask is not installed, or no scheduler is at the address.
    """
    if workers is not None and workers < 1:
        raise UsageError(f"--workers is {workers}, expected 1 or more")
    if workers == 1:
        return Here()
    if importlib.util.find_spec("distributed") is None:
        raise UsageError(_MISSING)
    return _local(workers) if scheduler is None else _there(scheduler)


def _there(scheduler: str) -> Cluster:
    """A cluster that was started elsewhere."""
    from distributed import Client

    try:
        client = Client(scheduler, timeout=10, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise UsageError(
            f"--scheduler {scheduler}: no Dask scheduler answers there ({one_line(error, 300)}); expected "
            "an address as tcp://host:8786"
        ) from error

    threads = sum(client.nthreads().values())
    return Cluster(
        client, f"{threads} workers of {scheduler}, dashboard {client.dashboard_link}", client.close
    )


def _local(workers: int) -> Cluster:
    """A cluster of processes on this machine."""
    import dask
    from distributed import Client, LocalCluster

    # a worker that is started again is no news
    logging.getLogger("distributed").setLevel(logging.CRITICAL)

    folder, bokeh = tempfile.mkdtemp(prefix="gp_mapping_fleet."), importlib.util.find_spec("bokeh")
    environment = dict.fromkeys(_THREADS, "1")
    source = os.pathsep.join(filter(None, [p for p in sys.path if p]))
    ending = contextlib.ExitStack()
    ending.callback(shutil.rmtree, folder, ignore_errors=True)
    try:
        with (
            _signals_collected() as signals,
            dask.config.set(
                {
                    "distributed.scheduler.allowed-failures": _DEATHS,
                    "distributed.worker.profile.enabled": False,  # it looks a hundred times a second
                    "distributed.nanny.environ": environment,
                    # without Dask's MALLOC_TRIM_THRESHOLD_, by which each matrix is allocated anew,
                    # page by page
                    "distributed.nanny.pre-spawn-environ": environment,
                    "temporary-directory": folder,
                }
            ),
        ):
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0" if bokeh else None,
                local_directory=folder,
                silence_logs=logging.CRITICAL,
                env={**environment, "PYTHONPATH": source},
            )
            ending.callback(cluster.close)
            client = Client(cluster, set_as_default=False)
            ending.callback(client.close)

        if signals:
            # the first of the signals that came meanwhile
            _interrupted(signals[0], None)
    except BaseException:
        ending.close()
        raise

    if threading.current_thread() is threading.main_thread():
        ending.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, _interrupted))

    dashboard = (
        f"dashboard {cluster.dashboard_link}"
        if bokeh
        else "no dashboard (it needs bokeh: pip install bokeh)"
    )
    return Cluster(client, f"{workers} workers, {dashboard}", ending.close)


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
