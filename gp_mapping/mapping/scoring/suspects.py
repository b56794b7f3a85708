"""Cells that the map did not expect: gross errors, or an edge of the field?

An edge and an error look alike in the cell that comes first. What comes next tells them apart:
after an error the sensor is back where the map has it, after an edge it stays where it went. So a
cell that would be weakened (one_step_ahead.py) waits. With the residuals r_i of it and of the
cells after it, each from the map without them,

    |r_i| < |r_i − r_{i−1}|    cell i is nearer to the map than to the cell before: there is a way
                               back, and those that wait were errors; they are weakened
    otherwise                  cell i goes on from the one before. Once the map expects one that
                               does, so far from all that it knew, they are the field

A source has a way back, too, and near its foot each cell may be less than half of the one before.
But it does not come and go at once: where no step, from the first r on down to r_i, is more than
half of the largest r, they go on as well. An error jumps there or back.

Three cells at least are no error, as of first values, and the last of them has to be one that the
map alone would not call one: an error lasts for less of the way than it takes the field to change.
At most MOST cells wait; so many that go on are the field as well. None waits beyond its pass: what
is not confirmed is weakened. A robot that stands confirms nothing, since cells of one place share
their error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import NamedTuple

from gp_mapping.core.types import Samples

__all__ = ["MOST", "Judged", "Suspects", "Verdict"]

MOST = 8  # cells that wait; one more decides, as nine decide at first
_AGREE = 3  # places in a row are no error, as of first values
_STEEPEST = 0.5  # of a peak's height, by one cell: two at least lead up to it, and down
_STANDS = 0.1  # of a cell's length; the robot has moved if it is farther


@dataclass(frozen=True)
class Judged:
    """A cell, and what the map without it makes of it.

    Attributes:
        cell: as it came.
        weakened: with the weight that it has as a gross error; the same object if it is none.
        residual: measured less predicted (C,), SI; None: there was no map to judge it.
        square: squared standardised error; None: nothing was predicted, or it waited in a file.
    """

    cell: Samples
    weakened: Samples
    residual: list[float] | None
    square: float | None = None

    @property
    def is_suspect(self) -> bool:
        """Whether it is a gross error if nothing confirms it."""
        return self.weakened is not self.cell

    def distance(self, other: Judged) -> float:
        """|r_i − r_j|, SI."""
        return math.dist(self.residual or [], other.residual or [])

    @property
    def size(self) -> float:
        """|r_i|, SI."""
        return math.hypot(*(self.residual or []))


class Verdict(NamedTuple):
    """Cells that nobody waits for any longer.

    Attributes:
        cells: for the map, in order.
        weakened: how many of them are gross errors.
    """

    cells: list[Samples]
    weakened: int


class Suspects:
    """Holds at most MOST cells until the next ones confirm them or not.

    Args:
        cell_length: m.
    """

    def __init__(self, cell_length: float):
        self._apart = _STANDS * cell_length
        self._held: list[Judged] = []

    def __len__(self) -> int:
        return len(self._held)

    @property
    def samples(self) -> int:
        """Raw samples of the cells that wait."""
        return sum(each.cell.raw_count for each in self._held)

    def look(self, cell: Judged) -> Verdict:
        """Look at one more cell.

        Args:
            cell: the new one, judged by a map that has none of those that wait.

        Returns:
            What is decided: nothing while cells wait, or some, and the new one with them.
        """
        before, wrong = [], 0
        if self._held and not self._is_continued(cell):
            before, wrong = self.release()
        if not (self._held or cell.is_suspect):
            return Verdict([*before, cell.cell], wrong)

        self._held.append(cell)
        full = len(self._held) > MOST
        if not full and (cell.is_suspect or not self._have_moved()):
            return Verdict(before, wrong)
        if self._have_moved():
            held, self._held = self._held, []
            return Verdict([*before, *(each.cell for each in held)], wrong)
        after, more = self.release()
        return Verdict([*before, *after], wrong + more)

    def release(self) -> Verdict:
        """Give up those that wait, weakened: nothing confirms them."""
        held, self._held = self._held, []
        return Verdict([each.weakened for each in held], sum(each.is_suspect for each in held))

    def _is_continued(self, cell: Judged) -> bool:
        """Whether a cell goes on from those that wait: from the last, or down from their top."""
        if cell.residual is None:
            return False
        step = cell.distance(self._held[-1])
        return cell.size >= step or self._is_peak(step)

    def _is_peak(self, out: float) -> bool:
        """Whether those that wait lead up to their largest residual and down again.

        Args:
            out: the step from the last of them to the newest cell, SI.
        """
        if not self._have_moved():
            return False
        inside = [after.distance(before) for before, after in pairwise(self._held)]
        top = max(each.size for each in self._held)
        return max(self._held[0].size, *inside, out) <= _STEEPEST * top

    def _have_moved(self) -> bool:
        """Whether those that wait are of so many places that they are no error."""
        places: list[list[float]] = []
        for each in self._held:
            place = each.cell.x[-1].tolist()
            if not places or math.dist(place, places[-1]) > self._apart:
                places.append(place)
        return len(places) >= _AGREE

    def state_dict(self) -> list[dict]:
        """For an exact resume: the cells that wait."""
        return [
            {
                "cell": _columns(each.cell),
                "weakened": _columns(each.weakened) if each.is_suspect else None,
                "residual": each.residual,
            }
            for each in self._held
        ]

    def load_state_dict(self, state: list[dict]) -> None:
        """Continue where state_dict was taken."""
        self._held = []
        for each in state:
            cell, weakened = Samples(**each["cell"]), each["weakened"]
            weakened = cell if weakened is None else Samples(**weakened)
            self._held.append(Judged(cell, weakened, each["residual"]))


def _columns(cell: Samples) -> dict:
    """Columns of a cell by name."""
    return {f.name: getattr(cell, f.name) for f in fields(cell)}
