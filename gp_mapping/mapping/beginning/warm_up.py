"""A sensor that has not begun to measure: its values until then are no beginning of the field.

Gas sensors, thermometers and many drivers report something else for their first seconds: a constant
(85 °C, zero, 1e10), or numbers of no field. Four such cells of nine are left out by their median
(first_values.py). More than that the first cells themselves cannot reveal; those that follow can:

    the range    of those after, all but the largest and the smallest; at least their signal_stddev,
                 and a step of a sensor that rounds
    all before   are one number to the bit, as are none of those after, and lie outside the range by
                 one of it; or lie outside by a million, as in no field. That they are far is not
                 enough: a robot may leave the sun
    the many     are those after: more than those before, and nine at least

The map then begins with those after. Only the first cells are looked at so, while they are few.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise

import torch

from gp_mapping.core.hyper.first_guess import first_guess
from gp_mapping.core.types import Samples
from gp_mapping.settings.mapping import MapSettings

__all__ = ["WarmUp"]

_MOST = 100  # cells that are kept
_LEAST = 9  # cells after the warm-up
_BY_MEDIAN = 4  # wild cells that the median of the first nine leaves out
_APART, _ABSURD = 1.0, 1e6  # ranges by which equal values, or any values, lie outside


class WarmUp:
    """Keeps the first cells, whatever becomes of them, until there are _MOST."""

    def __init__(self, settings: MapSettings):
        self._settings = settings
        self._cells: list[Samples] | None = [] if settings.robust and settings.metric else None
        self._values: list[list[float]] = []

    def close(self) -> None:
        """Stop looking: the beginning is over."""
        self._cells, self._values = None, []

    def add(self, cell: Samples, step: float = 0.0) -> tuple[list[Samples], list[Samples]] | None:
        """Add one more cell.

        Args:
            cell: the new one.
            step: of a sensor that rounds, SI.

        Returns:
            Where the sensor has begun to measure, the cells before that and those after; else None.
        """
        if self._cells is None:
            return None
        self._cells += [cell[i] for i in range(len(cell))]
        self._values += cell.y.tolist()

        before = max(self._before(channel, step) for channel in range(len(self._values[0])))
        if before:
            split = self._cells[:before], self._cells[before:]
            self.close()
            return split
        if len(self._cells) >= _MOST:
            self.close()
        return None

    def _before(self, channel: int, step: float) -> int:
        """Number of cells before the sensor measures; 0: none, or it is not known yet."""
        values = [row[channel] for row in self._values]
        n = len(values)
        if n <= _LEAST:
            return 0

        # length of the run of equal first values; 0 of a sensor that repeats itself later, too
        stuck = _equal(values)
        stuck *= stuck > 1 and all(a != b for a, b in pairwise(values[stuck:]))

        for most, apart in ((n, _ABSURD), (stuck, _APART)):
            outside = _outside(values[:most], values[n // 2 :], apart)
            # the median leaves out four wild cells, and the many are those after
            if (
                not (_BY_MEDIAN < outside or outside == stuck)
                or not 0 < outside < n - outside >= _LEAST
            ):
                continue
            # the costly part, only where the plain range shows something
            least = max(step, self._signal(outside, channel))
            if outside == _outside(values[:outside], values[outside:], apart, least):
                return outside
        return 0

    def _signal(self, start: int, channel: int) -> float:
        """How much the field varies in cells from number start on, SI."""
        s, cells = self._settings, (self._cells or [])[start:]
        x, y = (
            torch.cat([c.x for c in cells]),
            torch.cat([c.y for c in cells])[:, channel : channel + 1],
        )

        return s.signal_stddev or first_guess(x, y, s.kernel, s.field_scale).signal

    def state_dict(self) -> list | None:
        """The cells, for an exact resume; None once it has stopped looking."""
        return (
            None
            if self._cells is None
            else [{f.name: getattr(c, f.name) for f in fields(c)} for c in self._cells]
        )

    def load_state_dict(self, state: list | None) -> None:
        """Continue where state_dict was taken."""
        self._cells = None if state is None else [Samples(**row) for row in state]
        self._values = [v for c in self._cells or () for v in c.y.tolist()]


def _outside(values: list[float], after: list[float], apart: float, least: float = 0.0) -> int:
    """Number of first values that lie outside the range of later ones.

    Args:
        values: the first ones.
        after: those that give the range, all but the largest and the smallest.
        apart: how many ranges outside.
        least: bound of the range from below.
    """
    _, low, *_, high, _ = sorted(after)
    reach = apart * max(high - low, least)
    return next((i for i, v in enumerate(values) if low - reach <= v <= high + reach), len(values))


def _equal(values: list[float]) -> int:
    """Number of first values that are the same."""
    return next((i for i, v in enumerate(values) if v != values[0]), len(values))
