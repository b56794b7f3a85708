"""Measurements of a sensor along the path."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["Track", "velocity_along"]


class Track(NamedTuple):
    """Averages over short stretches of the path, in order of time.

    Attributes:
        x: places (N, 2), m.
        y: values (N,).
        stamp: (N,), s.
        begins: (N,) bool, whether a pass begins.
        span: time that each averages (N,), s; None: each is a value of one moment.
    """

    x: Tensor
    y: Tensor
    stamp: Tensor
    begins: Tensor
    span: Tensor | None = None

    def places_before(self, seconds: Tensor | float) -> Tensor:
        """Where the sensor was so many seconds before each row: (N, 2) m.

        On the way between the rows, not on a line ahead: at the end of a lane these are apart. At
        the ends of a pass, with the speed there.

        Args:
            seconds: (N,) or one number, s; negative: afterwards.
        """
        n, then = len(self.y), self.stamp - seconds
        own = torch.arange(n)
        number = self.begins.long().cumsum(0) - int(self.begins[0])
        first = self.begins.clone()
        first[0] = True
        starts = own[first]
        ends = torch.cat([starts[1:] - 1, own[-1:]])

        inside = (then >= self.stamp[starts[number]]) & (then <= self.stamp[ends[number]])
        along = [np.interp(then, self.stamp, column) for column in self.x.T]
        between = torch.from_numpy(np.stack(along, 1))
        speed = velocity_along(self.x, self.stamp, self.begins)
        ahead = self.x - (self.stamp - then)[:, None] * speed
        return torch.where(inside[:, None], between, ahead)


def velocity_along(x: Tensor, stamp: Tensor, begins: Tensor) -> Tensor:
    """Velocity at each row, from the row before to the one after, of one pass: (N, 2) m/s.

    Args:
        x: places (N, 2), m.
        stamp: (N,), s.
        begins: (N,) bool, whether a pass begins.
    """
    own = torch.arange(len(x))
    ends = torch.cat([begins[1:], begins.new_ones(1)])
    before, after = torch.where(begins, own, own - 1), torch.where(ends, own, own + 1)

    elapsed = (stamp[after] - stamp[before])[:, None]
    return torch.where(elapsed > 0, (x[after] - x[before]) / elapsed.clamp_min(1e-9), 0.0)
