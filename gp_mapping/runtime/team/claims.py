"""What the other robots of a team have announced that they will measure next.

A robot announces the places that it suggests, again and again as long as somebody listens to its
suggestions. An announcement replaces the one before, so loss, repetition and order change nothing;
one that is not repeated for `lasts` seconds of this node's clock has expired.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from gp_mapping.planning.others import Others, take_turns

__all__ = ["Claims"]

_LASTS = 20.0  # s


class Claims:
    """Announcements of other robots; for any thread.

    Args:
        own: this robot's name in the order of choice, which is that of the names; '': it comes
            last.
        lines: returns the lines (K, 2) m that others drive by their plans: these count first,
            whatever the names.
        lasts: s.

    Attributes:
        news: grows with every change of what is claimed.
    """

    def __init__(
        self,
        own: str = "",
        lines: Callable[[], list[np.ndarray]] = list,
        lasts: float = _LASTS,
    ):
        self._own, self._lines, self._lasts = own, lines, lasts
        self._lock = threading.Lock()
        self._held: dict[str, tuple[np.ndarray, ...]] = {}
        self._heard: dict[str, float] = {}
        self.news = 0

    def take(self, robot: str, choices: tuple[np.ndarray, ...], now: float) -> None:
        """Replace what a robot has announced.

        Args:
            robot: its name in the order of choice.
            choices: in its order, (m, 2) m each, as Suggestions.measured; none: it claims nothing.
            now: monotonic s.
        """
        with self._lock:
            self._heard[robot] = now
            before = self._held.get(robot, ())
            if len(before) == len(choices) and all(map(np.array_equal, before, choices)):
                return
            self._held[robot] = choices
            self.news += 1

    def expire(self, now: float) -> list[str]:
        """Drop what was not repeated for too long.

        Args:
            now: monotonic s.

        Returns:
            The robots whose places are free by that.
        """
        with self._lock:
            gone = [
                robot
                for robot, choices in self._held.items()
                if choices and now - self._heard[robot] > self._lasts
            ]
            for robot in gone:
                del self._held[robot], self._heard[robot]
            self.news += bool(gone)
        return gone

    def others(self, count: int) -> Others:
        """What others will measure before each of `count` choices of this robot."""
        with self._lock:
            held = sorted(self._held.items())
        last = not self._own
        return Others(
            tuple(self._lines()),
            take_turns(
                [choices for robot, choices in held if last or robot < self._own],
                [choices for robot, choices in held if not last and robot > self._own],
                count,
            ),
        )

    @property
    def places(self) -> int:
        """Number of places that others claim."""
        with self._lock:
            return sum(map(len, self._held.values()))
