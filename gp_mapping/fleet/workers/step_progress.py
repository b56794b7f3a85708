"""Progress of a long step in a file, from which the step goes on when its worker has died.

The file is read by another process of the same run, in a folder that the run made for itself and
removes at its end. So it holds the objects themselves, by pickle, and no other release has to read
it.
"""

from __future__ import annotations

import pickle
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gp_mapping.fleet.workers.deaths import advanced
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
        self._segments: list[str] = []  # names of files that hold the list that grows
        self._written = 0  # items in them

    def load(self) -> Any:
        """What was kept last, as `save` had it; None where there is none that can be used."""
        if self._file is None or not self._file.is_file():
            return None

        try:
            segments, state = self._read(self._file)
            grown = [item for name in segments for item in self._read(self._file.with_name(name))]
        except Exception:  # whatever is wrong with a file: without it the step begins anew
            return None

        self._segments, self._written = segments, len(grown)
        return state, grown

    def due(self) -> bool:
        """Whether the last writing is long enough ago."""
        return self._file is not None and time.monotonic() >= self._next

    def save(self, state: Any, grown: Sequence = ()) -> None:
        """Keep this in place of the last one; a full disk costs the files, not the step.

        Args:
            state: written anew each time.
            grown: the list of the last time with more items at its end; only these are written.
        """
        assert self._file is not None, "who asks first whether it is due does not come here"

        began = time.monotonic()
        with suppress(OSError):
            if len(grown) > self._written:
                # a name that no other life of the step uses, should two of them be under way
                segment = self._file.with_name(f"{self._file.name}.{uuid.uuid4().hex}")
                self._write(segment, grown[self._written :])
                self._segments, self._written = [*self._segments, segment.name], len(grown)
            self._write(self._file, (self._segments, state))
        advanced()

        now = time.monotonic()
        self._next = now + max(_PERIOD, _WORK * (now - began))

    def remove(self) -> None:
        """Remove the files, since the step is done; also those of lives that ended in between."""
        if self._file is not None:
            for file in (self._file, *self._file.parent.glob(f"{self._file.name}.*")):
                with suppress(OSError):
                    file.unlink(missing_ok=True)

    def _read(self, file: Path) -> Any:
        """The object in a file of this run."""
        with file.open("rb") as opened:
            return pickle.load(opened)

    def _write(self, path: Path, value: Any) -> None:
        """Write an object into a file, whole or not at all."""
        with open_atomic(path) as file:
            pickle.dump(value, file, protocol=pickle.HIGHEST_PROTOCOL)
