"""The same recording mapped again with other settings: side by side on the cores that there are, where it takes long.

`python -m gp_mapping.commands.check.refits` is one such process: a job on its standard input, the RMSE on its output.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from gp_mapping.analysis.refits import rmse_of
from gp_mapping.commands.processes import die_with_parent, python_path
from gp_mapping.core.types import Samples
from gp_mapping.settings.mapping import MapSettings

__all__ = ["refits"]

_LONG = 20.0  # s of work for which starting processes pays: each loads torch first


def refits(
    train: list[Samples],
    test: list[Samples],
    ways: dict[str, MapSettings],
    seconds: float,
    progress: Callable[[str], None],
) -> dict[str, float]:
    """RMSE on the test of each way to map the others, whatever the number of cores: to the bit.

    seconds: that one map takes.  progress: told the name of each as it begins.
    """
    cores = min(len(ways), _cores()) if seconds * len(ways) > _LONG else 1
    found = _side_by_side(train, test, ways, cores, progress) if cores > 1 else {}
    for name, settings in ways.items():
        if found.get(name) is None:
            if name not in found:
                progress(name)
            found[name] = rmse_of(train, test, settings)
    return {name: found[name] for name in ways}


def _side_by_side(
    train: list[Samples],
    test: list[Samples],
    ways: dict[str, MapSettings],
    cores: int,
    progress: Callable[[str], None],
) -> dict[str, float | None]:
    """What each process found; None where it could not."""
    aside = Aside()

    def one(name: str) -> float | None:
        progress(name)
        return aside.rmse_of(train, test, ways[name])

    with ThreadPoolExecutor(max_workers=cores) as threads:
        try:
            return dict(zip(ways, threads.map(one, ways)))
        except BaseException:  # Ctrl-C, too: nobody waits for the others
            threads.shutdown(wait=False, cancel_futures=True)
            aside.end()
            raise


class Aside:
    """Maps made in processes of their own."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen] = set()
        self._ended = False

    def rmse_of(
        self, train: list[Samples], test: list[Samples], settings: MapSettings
    ) -> float | None:
        """None where it cannot be done there: a part that this program alone has registered, or no memory for it."""
        if self._ended:
            return None
        command = [sys.executable, "-m", "gp_mapping.commands.check.refits"]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for us
            env={**os.environ, "PYTHONPATH": python_path()},
        )
        self._running.add(process)
        if self._ended:
            process.terminate()
        out, _ = process.communicate(pickle.dumps((train, test, settings, torch.get_num_threads())))
        self._running.discard(process)
        return float(out) if process.returncode == 0 else None

    def end(self) -> None:
        """All of them at once; what they were asked for is nobody's any more."""
        self._ended = True
        for process in list(self._running):
            process.terminate()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def main() -> None:
    """One job."""
    die_with_parent()
    train, test, settings, threads = pickle.load(sys.stdin.buffer)
    torch.set_num_threads(threads)
    print(repr(rmse_of(train, test, settings)))


if __name__ == "__main__":
    main()
