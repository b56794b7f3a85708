"""Variance of the error that a sensor makes by rounding, in averages of samples along a pass.

A cell of a sensor of resolution q has the variance m q²/12 of it: rounding averages out where noise
moves the number, but m cells in a row that tell one and the same number err together, as one.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["Rounding"]

_ROUNDS = 1.5  # cells in a row of the same number, from which on a sensor of single samples rounds
_NEWEST = 0.1  # weight of the newest number of cells that tell the same, in its average


class Rounding:
    """Learns how coarsely a sensor rounds, cell by cell.

    Attributes:
        resolution: smallest step between samples of a cell, SI; of a sensor that does not round
            nearly 0; infinite while there was no step.
    """

    def __init__(self) -> None:
        self.resolution = math.inf
        # the number that the newest cells tell alike, so many of them, and how many usually do
        self._level: list[float] | None = None
        self._alike, self._usual_alike = 0, 1.0
        self._step = math.inf  # smallest step from such a number to the next sample

    def note_steps(self, y: np.ndarray) -> None:
        """Note the smallest step of a sensor that rounds.

        A sensor of whole degrees gives the same number nearly always, and the next one is no error.

        Args:
            y: (n, C), SI, of a cell.
        """
        steps = np.abs(y[1:] - y[:-1])
        # smaller ones are rounding of float64
        real = steps[steps > 1e-12 * np.abs(y).max()]
        if len(real):
            self.note_step(float(real.min()))

    def note_step(self, step: float) -> None:
        """Note the smallest step of a cell, SI."""
        self.resolution = min(self.resolution, step)

    def variance(self, first: list[float], alike: bool, count: int) -> float:
        """m q²/12 of the next cell of a sensor that rounds, SI²; 0 where its samples differ.

        Args:
            first: sample of the cell (C,), SI.
            alike: whether all of them are the same.
            count: of them.
        """
        level = list(first) if alike else None
        if level is None or level != self._level:
            if self._level is not None:
                step = [abs(a - b) for a, b in zip(first, self._level) if a != b]
                self._step = min([self._step, *step])
                self._usual_alike += _NEWEST * (self._alike - self._usual_alike)
            self._level, self._alike = level, 0
        self._alike += 1
        step, many = min(self.resolution, self._step), max(self._alike, self._usual_alike)
        # a single sample shows no rounding
        rounds = level is not None and (count > 1 or many >= _ROUNDS)
        return many * step**2 / 12.0 if rounds and step < math.inf else 0.0

    def state_dict(self) -> dict:
        """Return what was learned, as a part of the state of a CellAverager."""
        return {
            "resolution": self.resolution,
            "level": self._level and [list(self._level), self._alike],
            "usual_alike": self._usual_alike,
            "step": self._step,
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken; older states lack some of it."""
        self.resolution = float(state.get("resolution", math.inf))
        level = state.get("level")  # absent in older maps, as what follows
        self._level, self._alike = (None, 0) if level is None else (list(level[0]), int(level[1]))
        self._usual_alike = float(state.get("usual_alike", 1.0))
        self._step = float(state.get("step", math.inf))
