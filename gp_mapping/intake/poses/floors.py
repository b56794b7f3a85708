"""Whether a robot was above, or below, where it had been: on another floor, or on a bridge."""

from __future__ import annotations

import math

__all__ = ["FLAT", "Floors"]

FLAT = 2.0  # m; the floors of a building are farther apart
_SIDE = 1.0  # m, of the places whose heights are compared with each other
_PLACES = 4096  # beyond, they are made twice as large


class Floors:
    """The lowest and highest height at each place: whether the robot was above where it had been.

    A place is a square; where there are too many, squares are joined, so that memory is bounded.

    Attributes:
        above: places where heights differ by more than floors of a building do not stand apart, or
            a slope of 45 degrees climbs within a place.
        most: by how much they differ there at most, m.
    """

    def __init__(self) -> None:
        self._side = _SIDE
        self._heights: dict[tuple[int, int], tuple[float, float]] = {}
        self._count()

    def __len__(self) -> int:
        """How many places there are."""
        return len(self._heights)

    def note(self, place: tuple[float, float], height: float) -> None:
        """Take in a height.

        Args:
            place: x and y where it is, m.
            height: m.
        """
        square = (math.floor(place[0] / self._side), math.floor(place[1] / self._side))
        before = self._heights.get(square)
        if before is None or not before[0] <= height <= before[1]:
            self._widen(square, height, height)
            self._count_one(before, self._heights[square])

        while len(self._heights) > _PLACES:
            self._join()

    def _widen(self, square: tuple[int, int], low: float, high: float) -> None:
        """Make the range of a square's heights at least this one."""
        now = self._heights.get(square, (low, high))
        self._heights[square] = min(now[0], low), max(now[1], high)

    def _join(self) -> None:
        """Make squares twice as large."""
        before, self._heights = self._heights, {}
        self._side *= 2.0
        for (i, j), heights in before.items():
            self._widen((i // 2, j // 2), *heights)
        self._count()

    def _count(self) -> None:
        """Count all places anew."""
        self.above, self.most = 0, 0.0
        for heights in self._heights.values():
            self._count_one(None, heights)

    def _count_one(self, before: tuple[float, float] | None, now: tuple[float, float]) -> None:
        """Count a place whose range of heights was another one before."""
        apart, limit = now[1] - now[0], max(FLAT, self._side)
        self.above += apart > limit and not (before and before[1] - before[0] > limit)
        self.most = max(self.most, apart)
