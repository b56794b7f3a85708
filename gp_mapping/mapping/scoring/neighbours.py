"""How much samples of a pass differ from their neighbours, and what of it is white noise.

Two spreads are learned on the way. One is of successive differences: what is farther than six of it
from the median of its cell is a gross error. The field's own change from sample to sample is in it,
which is right there, and too much for a noise: where the field changes by more than the noise from
one sample to the next the noise would be that change. To first order it is a slope, which drops out
of

    e_i = y_i − a y_{i−1} − (1 − a) y_{i+1},     E e² = σ² (1 + a² + (1 − a)²)

with a from the stamps, so that the last two terms are y interpolated at stamp i.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median_low

import numpy as np

from gp_mapping.mapping.averaging.gross_errors import GROSS

__all__ = ["Spread", "noise_squares", "step_squares"]

_FIRST = 9  # cells of which wild ones, compared with the quieter among them, do not count
_KNOWN = 10  # squares from which on a spread, or what is typical, is known
_NEWEST = 51  # squares, whose median is typical
_MEDIAN_OF_SQUARE = 0.4549  # of a standard normal
_REMEMBERED = 0.999  # factor of a square's weight with each later one
_WILD = 25.0  # times the typical square; beyond it one is an error (five deviations)


def step_squares(y: np.ndarray) -> list[float]:
    """Return squared differences of successive samples y (n, C), the mean over components."""
    return (np.add.reduce((y[1:] - y[:-1]) ** 2, 1) / y.shape[1]).tolist()


def noise_squares(y: np.ndarray, stamp: np.ndarray) -> list[float]:
    """Return 2 e² / (1 + a² + (1 − a)²), the mean over components; on average it is 2σ².

    Of fewer than three samples these are squared differences, with the field's change in them.

    Args:
        y: (n, C), in order of time.
        stamp: (n,) s.
    """
    if len(y) < 3:
        return step_squares(y)

    step = stamp[1:] - stamp[:-1]
    span = step[1:] + step[:-1]
    even = span <= 0.0  # all at one moment
    a = np.where(even, 0.5, step[1:] / np.where(even, 1.0, span))
    error = y[1:-1] - a[:, None] * y[:-2] - (1.0 - a)[:, None] * y[2:]
    return (
        2.0 * np.add.reduce(error**2, 1) / (y.shape[1] * (1.0 + a**2 + (1.0 - a) ** 2))
    ).tolist()


class Spread:
    """A variance from squares that are twice as large on average, remembered over about 1000.

    Args:
        robust: whether wild squares count less.

    Attributes:
        sum: Σ of squares, the older ones faded.
        count: how many they are, likewise.
    """

    def __init__(self, robust: bool = True):
        self.robust, self.sum, self.count = robust, 0.0, 0.0
        # the newest squares that were noted, wild ones among them
        self._newest: deque[float] = deque(maxlen=_NEWEST)
        # squares of each of the first cells; None: they are over
        self._begun: list[list[float]] | None = []

    @property
    def variance(self) -> float:
        """Half the mean of the squares; 0 while too little is known."""
        return 0.5 * self.sum / self.count if self.count >= _KNOWN else 0.0

    def typical(self, resolution: float) -> float | None:
        """Half the typical one of the squares that were noted; None while too little is known.

        Typical is by the median of the newest: spikes are never usual, however many have come, and
        what is usual after a quiet start becomes typical.

        Args:
            resolution: smallest step of the sensor: one that rounds tells most numbers twice, and
                its step is no spike.
        """
        if len(self._newest) < _KNOWN:
            return None
        least = 0.0 if resolution == math.inf else resolution**2
        return 0.5 * max(median_low(self._newest) / _MEDIAN_OF_SQUARE, least)

    def reweighted(self, resolution: float) -> float | None:
        """Variance by all squares but gross errors, of those noted; None as of typical.

        Half the mean of the newest that are within GROSS deviations of the typical one: noise of
        heavy tails is in it with its tails, as is that of readings of which every second is
        interpolated, whose median is far below; errors farther off are not, however large.

        Args:
            resolution: as of typical.

        Reference:
            Rousseeuw and Leroy 1987, Robust Regression and Outlier Detection: the reweighted scale.
        """
        typical = self.typical(resolution)
        if typical is None:
            return None
        most = 2.0 * GROSS**2 * typical
        inlying = [square for square in self._newest if square <= most]
        return max(typical, 0.5 * sum(inlying) / max(len(inlying), 1))

    def note(self, squares: list[float]) -> None:
        """Note the squares of a cell, before any of its samples is left out."""
        self._newest += squares

    def add(self, squares: list[float], few: bool, resolution: float, whole: bool = False) -> None:
        """Take in the squares of a cell's good samples.

        Where nothing in their cell could tell a wild one from the others, one beyond _WILD times
        the typical counts as that. A whole cell of wild ones counts on average for no more than
        _WILD times what is usual. Of the first cells wild ones, compared with the quieter among
        them, do not count at all.

        Args:
            squares: of differences or of noise, as of step_squares or noise_squares.
            few: whether the cell has too few samples to tell a wild one.
            resolution: smallest step of the sensor.
            whole: wild ones are none, and count as they are.
        """
        robust = self.robust and not whole
        if few and robust:
            typical = self.typical(resolution)
            if typical is None:
                return
            most = 2.0 * _WILD * typical
            squares = [min(square, most) if most > 0 else square for square in squares]
        if not squares:
            return

        if self._begun is None or not robust:
            # later cells: the fading mean so far is what is usual
            most = 2.0 * _WILD * self.variance if robust else 0.0
            wild = 0.0 < most * len(squares) < sum(squares)
            self._fade([most] * len(squares) if wild else squares)
            return

        self._begun.append(squares)
        # anew from all first cells, now that one more tells which of them are quiet
        self.sum = self.count = 0.0
        # the lower quartile of the cells' means
        quiet = sorted(sum(each) / len(each) for each in self._begun)[len(self._begun) // 4]
        for each in self._begun:
            if sum(each) <= _WILD * quiet * len(each) or not quiet:
                self._fade(each)
        if len(self._begun) >= _FIRST:
            self._begun = None

    def _fade(self, squares: list[float]) -> None:
        """Add squares to the fading sums."""
        total, count = self.sum, self.count
        for square in squares:
            total, count = _REMEMBERED * total + square, _REMEMBERED * count + 1.0
        self.sum, self.count = total, count

    def state_dict(self) -> dict:
        """Return the fading sum with its count, and the squares that are still looked at."""
        return {
            "sum": self.sum,
            "count": self.count,
            "newest": list(self._newest),
            "begun": self._begun and [list(each) for each in self._begun],
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken."""
        self.sum, self.count = float(state["sum"]), float(state["count"])
        self._newest = deque(map(float, state["newest"]), maxlen=_NEWEST)
        begun = state["begun"]
        self._begun = None if begun is None else [list(map(float, each)) for each in begun]
