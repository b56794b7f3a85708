"""How far a long step has come, in a file: the step goes on there when the worker that was doing it has died.

Whoever reads the file is the one who wrote it: another process of the same run, in a folder that the run made for
itself and removes at its end. So the objects themselves are in it, by pickle, and nothing is kept for another release.
"""

from __future__ import annotations

import pickle
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from gp_mapping.store.atomic import written_whole

__all__ = ["Halfway"]

_PERIOD = 1.0  # s of work that may be lost, where writing is cheap
_WORK = 20.0  # times as long as the last writing took is worked before the next one: writing takes 1/20 at most


class Halfway:
    """Keeps the state of a step from time to time.

    Args:
        file: its name, in a folder of this run alone; None to keep nothing.
    """

    def __init__(self, file: Path | None):
        self._file, self._next = file, time.monotonic() + _PERIOD

    def found(self) -> Any:
        """What was kept last; None where there is nothing, or nothing that can be used."""
        if self._file is None or not self._file.is_file():
            return None
        try:
            with self._file.open("rb") as file:
                return pickle.load(file)
        except (
            Exception
        ):  # whatever is the matter with it: without it the step begins at its beginning
            return None

    def due(self) -> bool:
        """Whether the last time is long enough ago."""
        return self._file is not None and time.monotonic() >= self._next

    def keep(self, state: Any) -> None:
        """Keep this in place of what was kept. A disk that is full costs the file, not the step."""
        assert self._file is not None, "who asks first whether it is due does not come here"
        began = time.monotonic()
        with suppress(OSError), written_whole(self._file) as file:
            pickle.dump(state, file, protocol=pickle.HIGHEST_PROTOCOL)
        now = time.monotonic()
        self._next = now + max(_PERIOD, _WORK * (now - began))

    def over(self) -> None:
        """The step is done: nothing is kept of its way."""
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)
