"""What one map can show of several channels: of a vector its norm, of classes the most likely one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gp_mapping.mapping.drawing.vector import axis_names, norm

__all__ = ["Shown", "layer_names", "show"]


class Shown(NamedTuple):
    """mean, stddev (…): what a grid has.  classes (…): the most likely class, None where there are none.

    mean_each, stddev_each (C, …): of each channel; None where there is one.
    """

    mean: np.ndarray
    stddev: np.ndarray
    mean_each: np.ndarray | None = None
    stddev_each: np.ndarray | None = None
    classes: np.ndarray | None = None


def show(mean: np.ndarray, variance: np.ndarray, classes: bool = False, excess=0.0) -> Shown:
    """mean, variance: (C, …), the unit and its square.  classes: channels are classes, and the largest one counts.

    excess: (…), of the norm's variance (vector.norm).
    """
    stddev = np.sqrt(np.maximum(variance, 0.0))
    if classes:
        top = mean.argmax(0)
        largest, spread = (np.take_along_axis(values, top[None], 0)[0] for values in (mean, stddev))
        return Shown(largest, spread, mean, stddev, top)
    if len(mean) == 1:
        return Shown(mean[0], stddev[0])
    return Shown(*norm(mean, variance, excess), mean, stddev)


def layer_names(channels: int, classes: bool = False) -> tuple[str, ...]:
    """How channels are called in layers: x y z, or the numbers of classes; () for one channel."""
    return tuple(map(str, range(channels))) if classes else axis_names(channels)
