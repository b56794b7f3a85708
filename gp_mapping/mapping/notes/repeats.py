"""Whether the sensor tells one number while the robot drives: it hangs, or is not connected.

A working sensor hardly ever reads one number twice to the bit, or, where it rounds, does so with
all of its numbers. So a run of measurements with one number is a hang

    of a sensor that does not round     from _FEWEST on, over _MOVED m: its usual step from one
                                        number to the next is many times its smallest
    of any other, or not known yet      from more on, over more, and where it is much longer than
                                        the longest run before

and, once it has ended, only where it ended with more than the smallest step: that is a level of a
sensor that rounds. Metres count and not seconds: at standstill a quiet sensor may repeat a value.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gp_mapping.core.types import Samples
from gp_mapping.mapping.notes.leaps import Leaps
from gp_mapping.mapping.notes.two_levels import TwoLevels

__all__ = ["Repeats"]

_FEWEST, _MOVED = 20, 1.0  # measurements and metres
_FEWEST_COARSE, _MOVED_COARSE = 50, 3.0
_LONGER = 5.0  # times the longest run
_FINE = 5.0  # times the smallest step
_LEVEL = 1.5  # times the smallest step; a smaller one leads to the next level
_KEPT = 200  # steps and runs, the newest
_KNOWN = 20  # steps from which on a sensor is known
_EQUAL = 1e-9  # of a value: rounding errors of one that was turned with the robot


@dataclass(slots=True)
class _Run:
    """Measurements with one number, one after another.

    Attributes:
        value: the number, SI; of a vector its norm.
        count: of measurements.
        metres: driven meanwhile.
        start: stamp of the first, s.
        end: stamp of the last, s.
        leap: the larger of the steps to it and from it, SI.
    """

    value: float
    count: int
    metres: float
    start: float
    end: float
    leap: float

    @property
    def seconds(self) -> float:
        """From the first measurement to the last."""
        return self.end - self.start


class Repeats:
    """Watches the numbers of one sensor, in order of time: also whether they leap, or alternate."""

    def __init__(self):
        self._run: _Run | None = None  # goes on
        self._first: _Run | None = None  # has ended before the sensor was known
        self._place: list[float] | None = None  # of the newest measurement
        self._begins = True  # a pass, with the next one
        self._steps: deque[float] = deque(maxlen=_KEPT)
        self._lengths: deque[int] = deque(maxlen=_KEPT)
        # hangs that are over, and their measurements
        self._hangs = self._measurements = 0
        self._worst: _Run | None = None
        self._leaps, self._levels = Leaps(), TwoLevels()  # of the same numbers

    def break_pass(self) -> None:
        """Let a new pass begin: the way to its first measurement is not driven."""
        self._begins = True
        self._levels.break_pass()

    def add(self, samples: Samples) -> None:
        """Take in the next measurements.

        One by one in Python: a live map brings a few at a time, for which arrays cost more.
        """
        y = samples.y.numpy()
        values = (y[:, 0] if y.shape[1] == 1 else np.linalg.norm(y, axis=1)).tolist()
        stamps = [0.0] * len(values) if samples.stamp is None else samples.stamp.tolist()

        away = self._ways(samples.x.tolist())
        self._leaps.add_all(values, away, stamps)
        self._levels.add_all(values)

        if self._add_new(values, stamps):
            self._begins = False
            return
        run, begins, self._begins = self._run, self._begins, False
        for value, step, stamp in zip(values, away, stamps):
            leap = 0.0 if run is None else abs(value - run.value)
            if run is not None and leap <= _EQUAL * abs(value):
                run.count, run.end = run.count + 1, stamp
                run.metres += 0.0 if begins else step
            else:
                if run is not None:
                    run.leap = max(run.leap, leap)
                    self._steps.append(leap)
                    self._end(run)
                run = _Run(value, 1, 0.0, stamp, stamp, leap)
            begins = False
        self._run = run

    def _add_new(self, values: list[float], stamps: list[float]) -> bool:
        """Take in measurements of which none repeats the one before.

        Returns:
            False, and nothing is done, where one does, or where a run may be a hang.
        """
        run = self._run
        if run is None or self._first is not None or run.count >= _FEWEST or not self._steps:
            return False
        leaps = [abs(b - a) for a, b in pairwise([run.value, *values])]
        if any(leap <= _EQUAL * abs(value) for leap, value in zip(leaps, values)):
            return False
        self._steps.extend(leaps)
        self._lengths.extend([run.count, *[1] * (len(values) - 1)])
        self._run = _Run(values[-1], 1, 0.0, stamps[-1], stamps[-1], leaps[-1])
        return True

    def _ways(self, places: list[list[float]]) -> list[float]:
        """How far each measurement is from the one before it, m."""
        before, self._place = [self._place or places[0], *places], places[-1]
        return [math.hypot(x[0] - p[0], x[1] - p[1]) for p, x in zip(before, places)]

    def _end(self, run: _Run) -> None:
        """Count a run that has ended as a hang, or as one of those that are usual."""
        if self._first is None and run.count < _FEWEST and len(self._steps) > 1:
            self._lengths.append(run.count)  # nearly always: the rest, for short
            return
        if len(self._steps) == 1:
            self._first = run
            return

        ended = [run] if self._first is None or len(self._steps) < _KNOWN else [self._first, run]
        if len(ended) == 2:
            self._first = None
        for each in ended:
            if self._is_hang(each) and each.leap > _LEVEL * min(self._steps):
                self._hangs, self._measurements = self._hangs + 1, self._measurements + each.count
                if self._worst is None or each.count > self._worst.count:
                    self._worst = each
            else:
                self._lengths.append(each.count)

    def _is_hang(self, run: _Run) -> bool:
        """Whether a run is too long for a sensor that works."""
        if run.count < _FEWEST or run.metres < _MOVED:
            return False  # all but few end here
        if len(self._steps) >= _KNOWN and np.median(self._steps) >= _FINE * min(self._steps):
            return True
        return (
            run.count >= max(_FEWEST_COARSE, _LONGER * max(self._lengths, default=0))
            and run.metres >= _MOVED_COARSE
        )

    def notes(
        self, scale: float, unit: str, limits: tuple[float, float] = (-math.inf, math.inf)
    ) -> list[str]:
        """What to say of the sensor: a sentence where it hangs, or has hung.

        Args:
            scale: one display unit in SI.
            unit: its name.
            limits: lower and upper end of the sensor's range, SI, as others say it; at neither of
                them it has hung.
        """
        return [
            *self._hang_notes(scale, unit, limits),
            *self._leaps.notes(scale, unit),
            *self._levels.notes(scale, unit),
        ]

    def _hang_notes(self, scale: float, unit: str, limits: tuple[float, float]) -> list[str]:
        """As `notes`, of numbers that repeat."""
        low, high = limits
        run, worst = (
            each if each is not None and low < each.value < high else None
            for each in (self._run, self._worst)
        )
        if run is not None and self._is_hang(run):
            return [
                f"the sensor has told exactly {run.value / scale:.6g} {unit} for {run.seconds:.1f} s and "
                f"{run.metres:.1f} m ({run.count} measurements): it hangs, is not connected, or is at the end of "
                "its range; what the map does not leave out of it, it takes for the field: look at its cable and "
                "driver, and drive there again"
            ]
        if worst is not None:
            return [
                f"the sensor hung ({self._hangs} times, {self._measurements} measurements), at worst at exactly "
                f"{worst.value / scale:.6g} {unit} for {worst.seconds:.1f} s and {worst.metres:.1f} m, up to stamp "
                f"{worst.end:.1f}; what the map has not left out of it, it took for the field: look at its cable "
                "and driver, and drive there again"
            ]
        return []
