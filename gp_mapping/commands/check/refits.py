"""Map the same recording again with other settings, side by side on all cores where it takes long.

`python -m gp_mapping.commands.check.refits` is one such process: it reads a pickled job from its
standard input and writes the RMSE to its standard output.
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

_LONG = 20.0  # s; with more work processes are worth their start: each loads torch first


def refits(
    train: list[Samples],
    test: list[Samples],
    ways: dict[str, MapSettings],
    seconds: float,
    progress: Callable[[str], None],
) -> dict[str, float]:
    """Return the RMSE on the test of each way to map; to the bit the same for any number of cores.

    Args:
        train: passes that map.
        test: passes that test.
        ways: settings of each map, by name.
        seconds: duration of one map.
        progress: called with the name of each map as it begins.

    Returns:
        RMSE by name, in the display unit.
    """
    cores = min(len(ways), _cores()) if seconds * len(ways) > _LONG else 1
    rmse_by_name = _side_by_side(train, test, ways, cores, progress) if cores > 1 else {}
    for name, settings in ways.items():
        # also what a process could not do, for a part that only this program has registered
        if rmse_by_name.get(name) is None:
            if name not in rmse_by_name:
                progress(name)
            rmse_by_name[name] = rmse_of(train, test, settings)

    return {name: rmse_by_name[name] for name in ways}


def _side_by_side(
    train: list[Samples],
    test: list[Samples],
    ways: dict[str, MapSettings],
    cores: int,
    progress: Callable[[str], None],
) -> dict[str, float | None]:
    """Return the RMSE that each process found; None where it could not."""
    aside = ChildProcesses()

    def run_one(name: str) -> float | None:
        """RMSE of the map of one way; None where its process fails."""
        progress(name)
        return aside.rmse_of(train, test, ways[name])

    with ThreadPoolExecutor(max_workers=cores) as threads:
        try:
            return dict(zip(ways, threads.map(run_one, ways)))
        except BaseException:  # Ctrl-C, too: the other maps are not waited for
            threads.shutdown(wait=False, cancel_futures=True)
            aside.end()
            raise


class ChildProcesses:
    """Make maps in child processes, and end them all at once."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen] = set()
        self._ended = False

    def rmse_of(
        self, train: list[Samples], test: list[Samples], settings: MapSettings
    ) -> float | None:
        """Map and test in a child process; blocks until it ends.

        Args:
            train: passes that map.
            test: passes that test.
            settings: of the map.

        Returns:
            The RMSE. None where the process fails: a part of the settings that only this program
            has registered, or too little memory.
        """
        if self._ended:
            return None

        command = [sys.executable, "-m", "gp_mapping.commands.check.refits"]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches this process only, which then calls end()
            env={**os.environ, "PYTHONPATH": python_path()},
        )
        self._running.add(process)
        # end() may have run between the check above and the line before: it has not seen this one
        if self._ended:
            process.terminate()

        out, _ = process.communicate(pickle.dumps((train, test, settings, torch.get_num_threads())))
        self._running.discard(process)
        return float(out) if process.returncode == 0 else None

    def end(self) -> None:
        """End all processes at once; their results are not needed any more."""
        self._ended = True
        for process in list(self._running):
            process.terminate()


def _cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def main() -> None:
    """Do one job: the child process."""
    die_with_parent()
    train, test, settings, threads = pickle.load(sys.stdin.buffer)
    torch.set_num_threads(threads)
    print(repr(rmse_of(train, test, settings)))


if __name__ == "__main__":
    main()
