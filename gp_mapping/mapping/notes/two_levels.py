"""Whether numbers alternate between two levels: two sensors publish on one topic.

Of _WINDOW measurements in a row the largest gap between their sorted numbers makes two levels where

    it is wider      than the numbers of both levels are spread, and than _STEPS of the smallest
                     step that the sensor has made (one that rounds flickers between two numbers)
    each level       holds _FEWEST of them, more than outliers of which there are few
    they alternate   _SWITCHES times or more: the field itself, where it has a step, does not

Noise of one sensor does so by chance in few windows, and two sensors in most of them.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np

__all__ = ["TwoLevels"]

_WINDOW, _FEWEST, _SWITCHES = 12, 3, 3  # measurements
_STEPS = 3.0
_MANY = 3  # windows from which on they are looked at together; time and memory alone
_JUDGED, _ENOUGH = 40, 10  # windows that are judged together, and from how many on


class TwoLevels:
    """Watches the numbers of one topic, in order of time."""

    def __init__(self) -> None:
        self._window: list[float] = []
        self._smallest = float("inf")  # step between two numbers that differ, SI
        # of the newest windows the distance of the two levels, SI; 0: there is one level
        self._apart: deque[float] = deque(maxlen=_JUDGED)
        self._worst: float | None = None  # distance in the first windows that are of two, SI

    def break_pass(self) -> None:
        """Let a new pass begin: numbers before and after it do not compare."""
        self._window.clear()

    def add_all(self, values: list[float]) -> None:
        """Take in measurements, SI."""
        window, start = self._window, 0
        if len(values) >= _MANY * _WINDOW:
            start = self._add_many(values)
        while start < len(values):
            part = values[start : start + _WINDOW - len(window)]
            start += len(part)
            window += part
            if len(window) == _WINDOW:
                self._note(self._distance(window))
                window.clear()

    def _add_many(self, values: list[float]) -> int:
        """Take in all windows that are full, at once; returns how many values are in them."""
        whole = [*self._window, *values]
        count = len(whole) // _WINDOW
        windows = np.array(whole[: count * _WINDOW]).reshape(count, _WINDOW)
        ordered = np.sort(windows, axis=1)
        steps = np.diff(ordered, axis=1)
        smallest = np.where(steps > 0.0, steps, np.inf).min(1)
        smallest = np.minimum.accumulate(np.minimum(smallest, self._smallest))
        widest, width = steps.max(1), ordered[:, -1] - ordered[:, 0]
        two = (widest > _STEPS * smallest) & (2.0 * widest > width)
        if not (two.any() or any(self._apart)):  # nearly always
            self._smallest = float(smallest[-1])
            self._apart.extend([0.0] * count)
        else:
            for window, least, looked_at in zip(windows.tolist(), smallest.tolist(), two.tolist()):
                self._smallest = least
                self._note(self._distance(window) if looked_at else 0.0)
        taken = count * _WINDOW - len(self._window)
        self._window.clear()
        return taken

    def _note(self, apart: float) -> None:
        """Note the distance of a window's levels."""
        self._apart.append(apart)
        if self._worst is None and len(self._apart) >= _ENOUGH:
            self._worst = self._usual()

    def _usual(self) -> float | None:
        """The usual distance of the levels, SI; None where most windows have one level."""
        two = [apart for apart in self._apart if apart]
        return float(np.median(two)) if 2 * len(two) > len(self._apart) else None

    def _distance(self, window: list[float]) -> float:
        """Distance of the two levels of a window, SI; 0 where it has one level."""
        ordered = sorted(window)
        steps = [high - low for low, high in pairwise(ordered)]
        gap, split = max((step, number) for number, step in enumerate(steps, 1))
        self._smallest = min([self._smallest, *(step for step in steps if step > 0.0)])

        low, high = ordered[:split], ordered[split:]
        if (
            min(len(low), len(high)) < _FEWEST
            or gap <= (low[-1] - low[0]) + (high[-1] - high[0])
            or gap <= _STEPS * self._smallest
        ):
            return 0.0

        switches = sum((a >= high[0]) != (b >= high[0]) for a, b in pairwise(window))
        return sum(high) / len(high) - sum(low) / len(low) if switches >= _SWITCHES else 0.0

    def notes(self, scale: float, unit: str) -> list[str]:
        """What to say of the topic: a sentence where two levels alternate.

        Args:
            scale: one display unit in SI.
            unit: its name.
        """
        if self._worst is None:
            return []
        return [
            f"what the sensor tells alternates between two levels, {self._worst / scale:.3g} {unit} apart, in one "
            "place: do two sensors publish on one topic, or does something disturb every other measurement? The "
            "map shows what lies between: give each sensor a topic of its own"
        ]
