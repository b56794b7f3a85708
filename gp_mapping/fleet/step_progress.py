"""Progress of a long step in a file, from which the step goes on when its worker has died.

The file is read by another process of the same run, in a folder that the run made for itself and
removes at its end. So it holds the objects themselves, by pickle, and no other release has to read
it.
"""

from __future__ import annotations

import pickle
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from gp_mapping.fleet.workers.lives import advanced
from gp_mapping.store.atomic import open_atomic

__all__ = ["StepProgress"]

_PERIOD = 1.0  # s of work that may be lost, where writing is cheap
# pause before the next writing, in times that the last one took: writing takes 1/20 at most
_WORK = 20.0


class StepProgress:
    """Keeps the state of a step from time to time.

    Args:
        file: its name, in a folder of this run alone; None to keep nothing.
    """

    def __init__(self, file: Path | None):
        self._file, self._next = file, time.monotonic() + _PERIOD

    def load(self) -> Any:
        """The state that was kept last; None where there is none that can be used."""
        if self._file is None or not self._file.is_file():
            return None

        try:
            with self._file.open("rb") as file:
                return pickle.load(file)
        except Exception:  # whatever is wrong with the file: without it the step begins anew
            return None

    def due(self) -> bool:
        """Whether the last writing is long enough ago."""
        return self._file is not None and time.monotonic() >= self._next

    def save(self, state: Any) -> None:
        """Keep this state in place of the last one; a full disk costs the file, not the step."""
        assert self._file is not None, "who asks first whether it is due does not come here"

        began = time.monotonic()
        with suppress(OSError), open_atomic(self._file) as file:
            pickle.dump(state, file, protocol=pickle.HIGHEST_PROTOCOL)
        advanced()

        now = time.monotonic()
        self._next = now + max(_PERIOD, _WORK * (now - began))

    def remove(self) -> None:
        """Remove the file, since the step is done."""
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)
