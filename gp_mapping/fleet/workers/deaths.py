"""How many workers have died in the middle of a step, counted by the step itself, in a file.

Dask blames a death on every step that its worker had been given, also on those that only waited
there; where workers are killed again and again, steps would be given up that have killed nobody.
Here a step that begins leaves a mark, and one that ends takes it away: a mark that is found is of
a life that ended in the middle of this step. What a life has kept of its way (step_progress.py) is
progress, and with it the count begins anew.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from gp_mapping.errors import UserError
from gp_mapping.store.atomic import write_atomic

__all__ = ["DEATHS", "StepLost", "advanced", "run_counted"]

DEATHS = 10  # workers that may die over one step, without progress, before it counts as what kills
_mark: ContextVar[Path | None] = ContextVar("mark", default=None)


class StepLost(UserError):
    """A step that could not be done anywhere."""


def run_counted(mark: Path, most: int, call: Callable, *arguments) -> Any:
    """Do call(*arguments), and count the workers that die over it.

    Args:
        mark: file of this step alone, in a folder of the run.
        most: workers that may die over it without progress.
        call: the step.
        arguments: of the step.

    Raises:
        StepLost: `most` workers have died over it since it last got on. Asked again, it is
            tried once more.
    """
    died, reported = _read(mark)
    if died >= most and reported < died:
        _write(mark, died, died)
        raise StepLost(f"{died} workers died over it, as where memory does not suffice")

    _write(mark, died + 1, reported)
    token = _mark.set(mark)
    try:
        return call(*arguments)
    finally:
        _mark.reset(token)
        with suppress(OSError):
            mark.unlink()


def advanced() -> None:
    """The step under way has kept what it has done: earlier deaths no longer count against it."""
    mark = _mark.get()
    if mark is not None:
        _write(mark, 1, 0)


def _read(mark: Path) -> tuple[int, int]:
    """Lives that have begun, and how many of them were reported; 0 where there is no mark."""
    try:
        died, reported = mark.read_text().split()
        return int(died), int(reported)
    except (OSError, ValueError):
        return 0, 0


def _write(mark: Path, died: int, reported: int) -> None:
    """Leave a mark; a full disk costs the count, not the step."""
    with suppress(OSError):
        write_atomic(mark, f"{died} {reported}".encode())
