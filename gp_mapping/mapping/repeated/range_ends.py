"""A sensor at an end of its range: a heap of equal numbers at the end of all that it tells.

Beyond its range a sensor tells its last number, to the bit: a receiver its floor, an analogue-
digital converter its largest code, a magnetometer its full scale. Such a heap is

    at an end       nearly nothing is told beyond it, and the numbers inside come up to it: one that
                    is a leap away is a sensor that drops out
    high            many times as high as each of the numbers next to it, also of a sensor that
                    rounds: there every number is a heap, and the last one is the lowest
    without noise   while measurements in a row elsewhere go to and fro about the field's change, by
                    more than the sensor rounds: a level of the field itself is noisy as all else,
                    or nothing is
    come back to    again and again; a sensor that hangs stays

and it is not the number 0 at the lower end, where there is nothing to measure: no gas, no light, no
count. What is looked at is one measurement in each half cell of the way, so that a robot which
stands still makes no heap.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

__all__ = ["RangeEnd", "RangeEnds"]

_KEPT = 512  # measurements that are looked at; beyond it every second one is dropped
_FEWEST, _LEAST = 10, 0.02  # equal numbers of a heap, and their share, at least
_BEYOND = 0.01  # share of the measurements beyond it, at most: other faults
_HIGHER, _NEXT = 2.5, 3  # times the counts of each of so many numbers next to it
_OFTEN = 3  # times that it is come back to
_RUN = 4  # numbers in a row, whose two second differences tell noise from the field's own change
_ENOUGH = 40  # such rows without a number of the heap, from which on the noise is known
# share of them whose second differences have opposite signs: .73 of white noise
_NOISY = 0.6
_QUARTER = 0.25  # quantile of second differences that must be a step of the rounding
_LEAP, _NEAREST = 10.0, 5  # usual steps; so many numbers inside are nearer to the heap
_ROUNDING = 1e-9  # of a limit: numbers that reach it up to rounding are at it
_NOTHING = [math.inf] * (_RUN - 1)


class RangeEnd(NamedTuple):
    """An end of a sensor's range.

    Attributes:
        value: the number that it tells there, SI.
        lower: whether it is the lower end.
        share: of the way, on which it tells it.
    """

    value: float
    lower: bool
    share: float

    def note(self, scale: float, unit: str, left_out: int = 0) -> str:
        """What to say of it, in a sentence.

        Args:
            scale: one display unit in SI.
            unit: its name.
            left_out: measurements that were left out for it.
        """
        if self.lower:
            side, beyond, limit, inside = "smallest", "below", "lower_limit", "min_value just above"
        else:
            side, beyond, limit, inside = "largest", "above", "upper_limit", "max_value just below"
        left = f"; {left_out} left out" if left_out else ""
        return (
            f"on {100 * self.share:.0f} % of the way the sensor tells exactly {self.value / scale:.6g} {unit}, the "
            f"{side} of all: the end of its range. The field is {beyond} it there, and a map that takes this number "
            f"for the field is wrong, and too sure, there{left}: likelihood: censored with {limit}: {self.value!r} "
            f"makes one that is not, and {inside} it (of a magnetic field max_field) leaves these measurements out"
        )


class RangeEnds:
    """Watches the numbers of one sensor of one channel, in order of time, for ends of its range.

    Args:
        length: m, of the way for each measurement that is looked at.

    Attributes:
        kept: measurements that were looked at: numbers in a row, SI, each after those before it in
            its pass; ∞: there were none.
        stride: of so many one is kept.
    """

    def __init__(self, length: float):
        self._length = length
        self.kept: list[list[float]] = []
        self.stride, self._seen = 1, 0
        self._place: list[float] | None = None  # of the newest one that was looked at
        self._newest = _NOTHING
        self._found: tuple[int, list[RangeEnd]] = 0, []  # and how many were seen by then

    def begin_pass(self) -> None:
        """Let a new pass begin: no number comes before its first."""
        self._place, self._newest = None, _NOTHING

    def add(self, values: list[float], places: list[list[float]]) -> None:
        """Take in the next measurements.

        Args:
            values: SI.
            places: (2,) of each, m.
        """
        told, place, length = [*self._newest, *values], self._place, self._length
        dist = math.dist
        for k, x in enumerate(places):
            if place is None or dist(x, place) >= length:
                place = x
                self._seen += 1
                if self._seen % self.stride == 0:
                    self._keep(told[k : k + _RUN])
        self._place, self._newest = place, told[1 - _RUN :]

    def _keep(self, row: list[float]) -> None:
        """Keep a number with those before it, and every second row where that is too much."""
        self.kept.append(row)
        if len(self.kept) > _KEPT:
            self.kept, self.stride = self.kept[::2], 2 * self.stride

    @property
    def found(self) -> list[RangeEnd]:
        """The ends of the sensor's range at which it was."""
        if self._found[0] != self._seen:
            self._found = self._seen, self._look()
        return self._found[1]

    def _look(self) -> list[RangeEnd]:
        """As `found`, from what was kept."""
        if len(self.kept) < 2 * _FEWEST:
            return []
        rows, out = np.array(self.kept), []
        for lower in (True, False):
            # turned so that the end is the largest number
            turned = -rows if lower else rows
            end = _heap(turned[:, -1])
            if end is None or (lower and end == 0.0):
                continue
            if _is_end(turned, end):
                share = float((turned[:, -1] == end).mean())
                out.append(RangeEnd(-end if lower else end, lower, share))
        return out

    @property
    def limits(self) -> tuple[float, float]:
        """The lower and the upper end of the sensor's range, SI; infinite where it is at none."""
        ends = {end.lower: end.value for end in self.found}
        return ends.get(True, -math.inf), ends.get(False, math.inf)

    def notes_beyond(self, limits: tuple[float, float], scale: float, unit: str) -> list[str]:
        """Say that numbers lie beyond what is said to be an end of the range.

        Args:
            limits: the lower and the upper end, as said, SI; infinite: none.
            scale: one display unit in SI.
            unit: its name.
        """
        value, out = np.array([row[-1] for row in self.kept]), []
        for name, limit, sign in ("lower_limit", limits[0], -1.0), ("upper_limit", limits[1], 1.0):
            far = sign * (value - limit) > _ROUNDING * abs(limit)
            if far.sum() >= _FEWEST:
                most = sign * (sign * value).max()
                out.append(
                    f"on {100 * far.mean():.0f} % of the way the sensor tells numbers beyond {name} "
                    f"({limit / scale:.6g} {unit}), up to {most / scale:.6g} {unit}: it is no end of its range, and "
                    "of these the map takes no more than that the field is beyond it; write the number that the "
                    "sensor tells at its end, SI"
                )
        return out

    def join(self, other: RangeEnds) -> None:
        """Add what another has kept of the same sensor."""
        stride = max(self.stride, other.stride)
        self.kept = [row for each in (self, other) for row in each.kept[:: stride // each.stride]]
        self.stride, self._seen = stride, self._seen + other._seen
        while len(self.kept) > _KEPT:
            self.kept, self.stride = self.kept[::2], 2 * self.stride

    def state_dict(self) -> dict:
        """For an exact resume."""
        return {
            "kept": [list(row) for row in self.kept],
            "stride": self.stride,
            "seen": self._seen,
            "place": self._place and list(self._place),
            "newest": list(self._newest),
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken."""
        self.kept = [list(map(float, row)) for row in state["kept"]]
        self.stride, self._seen = int(state["stride"]), int(state["seen"])
        self._place = None if state["place"] is None else list(map(float, state["place"]))
        self._newest, self._found = list(map(float, state["newest"])), (-1, [])


def _heap(value: np.ndarray) -> float | None:
    """The number that is told often with nearly none above it, far oftener than those below it.

    Args:
        value: (n,), SI.
    """
    numbers, counts = np.unique(value, return_counts=True)
    often = np.flatnonzero(counts >= max(_FEWEST, _LEAST * len(value)))
    if not len(often):
        return None
    k = int(often[-1])
    if k == 0 or counts[k + 1 :].sum() > _BEYOND * len(value):
        return None
    next_to_it = counts[max(0, k - _NEXT) : k].max()
    return float(numbers[k]) if counts[k] >= _HIGHER * next_to_it else None


def _is_end(rows: np.ndarray, end: float) -> bool:
    """Whether a heap at the upper end is the end of a range.

    Args:
        rows: (n, _RUN), SI, numbers in a row; infinite: none.
        end: the number of the heap.
    """
    value = rows[:, -1]
    times = int(np.diff((value == end).astype(int), prepend=0).clip(0).sum())
    inside = value[value < end]
    # rows of which none is at an end
    free = rows[((rows < end) & (rows > value.min())).all(1)]
    if times < _OFTEN or len(inside) < _NEAREST or len(free) < _ENOUGH:
        return False

    usual = float(np.median(np.abs(np.diff(free))))
    if end - np.sort(inside)[-_NEAREST] > _LEAP * usual:
        return False  # it leaps there

    bends = np.diff(free, 2)
    if (bends.prod(1) < 0.0).mean() < _NOISY:
        return False  # no noise to be seen
    rounding = float(np.diff(np.unique(inside)).min())
    return float(np.quantile(np.abs(bends), _QUARTER)) >= rounding * (1.0 - 1e-6)
