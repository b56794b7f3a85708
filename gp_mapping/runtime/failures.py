"""Exceptions in the map's thread: counted by stage and logged, and the thread goes on."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable

from gp_mapping.threads import contained

__all__ = ["Failures"]

_PERIOD = 5.0  # s, in which the same exception is logged once


class Failures:
    """Counts and logs exceptions; nothing is hidden.

    Args:
        counts: where they are counted, as error_ and the name of the stage.
        on_error: called with a text for the log.
    """

    def __init__(self, counts: Counter, on_error: Callable[[str], None]):
        self._counts, self._on_error = counts, on_error
        self._last = ("", 0.0)  # the newest traceback, and monotonic s when it was logged

    def guard(self, stage: str, function, *arguments) -> None:
        """Call a function; an exception is counted and logged, and ends here.

        Args:
            stage: of the work, under which an exception is counted.
            function: what is called.
            arguments: with which.
        """
        # a robot's map must go on; nothing is hidden, all is logged and counted
        with contained(lambda error: self.record(stage)):
            function(*arguments)

    def record(self, stage: str) -> None:
        """Count the exception that is being handled, and log it, the same one every 5 s at most.

        Args:
            stage: as of `guard`.
        """
        name = f"error_{stage}"
        self._counts[name] += 1
        text, now = traceback.format_exc(), time.monotonic()
        if text != self._last[0] or now - self._last[1] > _PERIOD:
            self._last = (text, now)
            self._on_error(
                f"{stage} failed ({self._counts[name]} times so far); the map goes on "
                f"without it:\n{text}"
            )
