"""Where the robot was when a sensor took in what it tells now, some seconds later."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np
import torch

from gp_mapping.core.types import Samples
from gp_mapping.mapping.response.blocks import Row

__all__ = ["DelayLine", "taken_in"]


class DelayLine:
    """Rows in, in order of time; the same at the places of so much earlier out.

    It holds the rows of the last `seconds`, and one more. What was taken in before a pass began has
    no place.

    Args:
        seconds: by how much, s; 0: rows stay where they are.
        rows: that it holds, in order of time, all of one pass.
    """

    def __init__(self, seconds: float, rows: list[Row] | None = None):
        self.seconds = seconds
        self._rows: deque[Row] = deque(rows or ())

    @property
    def rows(self) -> list[Row]:
        """Those that it holds."""
        return list(self._rows)

    def place(self, row: Row) -> Row | None:
        """The row where the robot was so much earlier; None: before its pass began."""
        if not self.seconds:
            return row
        rows = self._rows
        if rows and (row.passes != rows[-1].passes or row.stamp <= rows[-1].stamp):
            rows.clear()
        rows.append(row)

        then = row.stamp - self.seconds
        while len(rows) > 1 and rows[1].stamp <= then:
            rows.popleft()
        if then < rows[0].stamp:
            return None
        old, new = rows[0], rows[1] if len(rows) > 1 else rows[0]
        share = (then - old.stamp) / (new.stamp - old.stamp) if new is not old else 0.0
        x, y = (a + share * (b - a) for a, b in zip(old.x, new.x))
        known = min(old.position, new.position) >= 0.0
        return row._replace(x=(x, y), position=max(old.position, new.position) if known else -1.0)

    def forget_before(self, stamp: float) -> None:
        """Forget rows before that, s."""
        self._rows = deque(row for row in self._rows if row.stamp >= stamp)


def taken_in(samples: Samples, seconds: float) -> Samples:
    """Raw samples of one pass, where each was taken in so much earlier.

    Args:
        samples: with stamps, in order of time.
        seconds: s.

    Returns:
        Without those that were taken in before the pass began; all as they came where these are
        all, or all but one.
    """
    if not seconds or samples.stamp is None:
        return samples
    stamp = samples.stamp - samples.stamp[0]
    inside = stamp >= seconds
    if int(inside.sum()) < 2:
        return samples
    then = (stamp - seconds).clamp_min(0.0)
    places = [np.interp(then, stamp, column) for column in samples.x.T]
    moved = replace(samples, x=torch.from_numpy(np.stack(places, 1)))
    return moved[inside.nonzero()[:, 0]]
