"""Where the steps of a fleet run: in this process, or on the workers of a Dask cluster.

A step is a function without side effects, so one that is lost with its worker is done again, and
nothing changes. Sums are formed in a fixed binary tree: the same numbers in the same order,
whatever the number of workers.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import importlib.util
import queue
import sys
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

from tqdm import tqdm

from gp_mapping.errors import UsageError, one_line
from gp_mapping.fleet.workers import deaths
from gp_mapping.fleet.workers.deaths import StepLost
from gp_mapping.fleet.workers.local import LocalWorkers
from gp_mapping.fleet.workers.remote import RemoteWorkers

__all__ = ["ClusterEngine", "Engine", "LocalEngine", "StepLost", "connect_engine"]

_LOOK = 0.5  # s between two looks at the workers, while somebody waits for them
# times that steps over which workers died are tried once more, without one of them coming through
_ROUNDS = 5
_MISSING = (
    "the Python package 'distributed' is not installed, and bags go to several workers by it; write: pip "
    "install 'gp_mapping[fleet]', or --workers 1, which needs no workers beside this process"
)


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
            StepLost: its workers died. Whatever the step itself raised comes as it is.
        """

    @abstractmethod
    def close(self) -> None:
        """End; no step follows."""

    def each(self, name: str, call: Callable, *columns: Iterable) -> list:
        """A handle for each row of the columns.

        Args:
            name: a word for what each step does.
            call: a function without side effects; step i is call(*row i).
            columns: one for each argument, all of one length.
        """
        return [self.step(name, call, *row) for row in zip(*columns, strict=True)]

    def tree(self, name: str, join: Callable, handles: list) -> Any:
        """A handle of all of them joined in pairs: of n steps ⌈log₂ n⌉ follow one another.

        Args:
            name: a word for what a joining step does.
            join: makes one value of two, without side effects.
            handles: one or more, in order.
        """
        while len(handles) > 1:
            pairs = [self.step(name, join, a, b) for a, b in zip(handles[::2], handles[1::2])]
            handles = pairs + (handles[-1:] if len(handles) % 2 else [])
        return handles[0]

    def results(self, handles: list, label: str = "", small: bool = False) -> Iterator[Any]:
        """The results in turn, with one of them in this process at a time.

        Args:
            handles: of steps.
            label: of a progress bar on stderr; '' for none.
            small: whether all may be in this process at once: each is fetched as soon as it is
                made, so that no worker that dies later takes it away.

        Yields:
            The result of each handle, in their order.
        """
        fetched: dict[int, Any] = {}
        if label or small:
            with tqdm(
                total=len(handles),
                desc=label,
                file=sys.stderr,
                mininterval=0.3,
                disable=None if label else True,
            ) as bar:
                for i in self.finished(handles):
                    if small:
                        with suppress(StepLost):  # which is raised in its turn
                            fetched[i] = self.result(handles[i])
                    bar.update(1)

        for i, handle in enumerate(handles):
            yield fetched.pop(i) if i in fetched else self.result(handle)


class LocalEngine(Engine):
    """Steps in this process, one after the other."""

    about = "1 worker: this process"

    def step(self, name: str, call: Callable, *arguments) -> Any:
        """Keep the call; it is made when its result, or one that needs it, is asked for.

        Args:
            name: not used.
            call: as in Engine.step.
            arguments: as in Engine.step.
        """
        return _Kept(call, *arguments)

    def finished(self, handles: list) -> Iterator[int]:
        """The indices of handles in their own order, each after its step was done."""
        for i, handle in enumerate(handles):
            self.result(handle)
            yield i

    def result(self, handle) -> Any:
        """The value of a step, which is done now if it was not before."""
        return handle.value

    def close(self) -> None:
        """Nothing has to be ended."""
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


class ClusterEngine(Engine):
    """Steps on a Dask cluster.

    Args:
        workers: of the cluster, which are looked at while somebody waits for a step.
    """

    def __init__(self, workers: LocalWorkers | RemoteWorkers):
        super().__init__()
        self.workers, self.client, self.about = workers, workers.client, workers.about
        self._run = uuid.uuid4().hex  # keys of several runs on one scheduler differ
        self._given_up: set[str] = set()  # keys of steps over which workers died again and again

    def step(self, name: str, call: Callable, *arguments) -> Any:
        """Submit the call to the cluster.

        Args:
            name: with which its key begins.
            call: as in Engine.step.
            arguments: as in Engine.step.
        """
        key = f"{name}-{self._run}-{next(self._numbers)}"
        if self.workers.marks is not None:
            arguments = (self.workers.marks / key, deaths.DEATHS, call, *arguments)
            call = deaths.run_counted
        return self.client.submit(call, *arguments, key=key, pure=True)

    def finished(self, handles: list) -> Iterator[int]:
        """The indices of handles as they are done; steps over which workers died are tried again.

        Such a step is tried when nothing else is under way, and given up after _ROUNDS rounds in
        which none of them comes through.
        """
        places: dict[str, list[int]] = {}
        for i, handle in enumerate(handles):
            places.setdefault(handle.key, []).append(i)

        # a step may have been given twice: it is awaited once
        waiting = {h.key: h for h in handles}
        aside: dict[str, Any] = {}
        done = self._called(waiting)
        rounds = 0

        while waiting:
            handle = self._next(done)
            del waiting[handle.key]

            if self._died_over(handle) and handle.key not in self._given_up:
                aside[handle.key] = handle
            else:
                # of those that are tried again one came through: the others may, too
                rounds = 0
                yield from places[handle.key]

            if not waiting and aside:
                if rounds == _ROUNDS:
                    self._given_up |= set(aside)
                    for key in aside:
                        yield from places[key]
                    return

                # when nothing else is under way: whoever died beside others has another chance
                waiting, aside, rounds = aside, {}, rounds + 1
                self._retry(waiting)
                done = self._called(waiting)

    def result(self, handle) -> Any:
        """The value of a step; one that was lost with its worker is made again.

        Raises:
            StepLost: workers died over it again and again. Whatever the step itself raised comes as
                it is.
            UsageError: the cluster has gone.
        """
        from distributed import CancelledError
        from distributed.scheduler import KilledWorker

        while True:
            # one that was lost with its worker is made again meanwhile
            for _ in self.finished([handle]):
                pass

            try:
                return self._fetched(handle)
            except StepLost:
                if handle.key in self._given_up:
                    raise
            except KilledWorker as error:
                if handle.key in self._given_up:
                    raise StepLost(
                        f"{error.allowed_failures + 1} workers and more died over it, as where memory does not "
                        f"suffice ({one_line(error, 200)})"
                    ) from error
            except CancelledError as error:
                raise UsageError(
                    f"the workers are gone ({self.about}); begin again where they are there"
                ) from error

    def close(self) -> None:
        """End the workers that this process has started, and leave the cluster."""
        self.workers.close()

    def _called(self, handles: dict[str, Any]) -> queue.SimpleQueue:
        """A queue into which each of these comes when it is done, has failed or was cancelled."""
        done: queue.SimpleQueue = queue.SimpleQueue()
        for handle in handles.values():
            handle.add_done_callback(done.put)
        return done

    def _next(self, done: queue.SimpleQueue) -> Any:
        """The next of a queue, with a look at the workers from time to time."""
        while True:
            with suppress(queue.Empty):
                return done.get(timeout=_LOOK)
            self.workers.look()

    def _fetched(self, handle) -> Any:
        """The value of a handle that is done, with a look at the workers from time to time."""
        answer = asyncio.run_coroutine_threadsafe(
            self.client.gather([handle], asynchronous=True), self.client.loop.asyncio_loop
        )
        while not concurrent.futures.wait([answer], timeout=_LOOK).done:
            self.workers.look()
        return answer.result()[0]

    def _died_over(self, handle) -> bool:
        """Whether a handle that is done has failed because its workers died."""
        from distributed.scheduler import KilledWorker

        return handle.status == "error" and isinstance(handle.exception(), StepLost | KilledWorker)

    def _retry(self, handles: dict[str, Any]) -> None:
        """Have failed steps, or those that they need, done again.

        Client.retry would fail for a step whose own handle is gone, as are those inside a tree.
        """
        failed = {key: h for key, h in handles.items() if h.status == "error"}
        before = {key: h.exception() for key, h in failed.items()}
        self.client.sync(self.client.scheduler.retry, keys=list(failed), client=self.client.id)

        # until the scheduler's word that they are under way, or have failed anew, has come here
        end = time.monotonic() + 10.0
        for key, handle in failed.items():
            while handle.status == "error" and handle.exception() is before[key]:
                if time.monotonic() > end:
                    return
                time.sleep(0.005)


def connect_engine(workers: int | None, scheduler: str | None = None) -> Engine:
    """The engine for some options of the command line.

    Args:
        workers: processes on this machine, of one thread each; one is this process. None with a
            scheduler.
        scheduler: address of a running Dask scheduler, as tcp://host:8786.

    Raises:
        UsageError: Dask is not installed, no scheduler is at the address, or no worker can be
            started.
    """
    if workers is not None and workers < 1:
        raise UsageError(f"--workers is {workers}, expected 1 or more")
    if workers == 1:
        return LocalEngine()
    if importlib.util.find_spec("distributed") is None:
        raise UsageError(_MISSING)
    return ClusterEngine(LocalWorkers(workers) if scheduler is None else RemoteWorkers(scheduler))
