"""Where a drive crosses itself, which is what tells errors of the sensor that last for seconds.

Such errors are alike along the way, over metres, as the field is. On lanes side by side nothing
tells them from a field with a small part that is longer along the lanes than across: with errors
of 2 to 10 s, and lanes a sixth of a lengthscale apart, the evidence of the true covariance is
expected to be 1 to 3 nats better than that of such a field. Where the path comes back, at
an angle or to the same lane, the field is the same and the error is another one.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from gp_mapping.core.types import Samples

__all__ = ["crossings", "lasting_text"]

_PART = 10.0  # points in a lengthscale: what lies nearer than that is one place
_AWAY = 2.0  # lengthscales of path between two visits of a place, at least
_ANGLE = 0.5  # sine of the least angle between two ways that cross
_SAME = 30.0  # parts of a lengthscale: ways nearer than one of them are one
_ENOUGH = 10  # differences, which tell their standard deviation to 1/√20 of itself


def crossings(passes: list[Samples], lengthscale: float) -> int:
    """Count places, a lengthscale apart, that the drive comes back to, across or once more.

    Args:
        passes: each in the order of the drive.
        lengthscale: of the field, m.
    """
    near = lengthscale / _PART
    parts, driven = [], 0.0
    for samples in passes:
        x = samples.x[:, :2].numpy()
        steps = np.hypot(*np.diff(x, axis=0).T) if len(x) > 1 else np.zeros(0)
        way = np.concatenate([[0.0], np.cumsum(steps)])
        at = np.arange(0.0, way[-1], near)
        if len(at) > 1:
            places = np.stack([np.interp(at, way, column) for column in x.T], 1)
            parts.append(np.column_stack([places, np.gradient(places, axis=0), driven + at]))
        # what another pass drives is another time
        driven += way[-1] + _AWAY * lengthscale
    if not parts:
        return 0

    rows = np.concatenate(parts)
    one, other = cKDTree(rows[:, :2]).query_pairs(near, output_type="ndarray").T
    (ax, ay), (bx, by) = rows[one, 2:4].T, rows[other, 2:4].T
    sine = np.abs(ax * by - ay * bx) / np.maximum(np.hypot(ax, ay) * np.hypot(bx, by), 1e-300)
    dx, dy = (rows[one, :2] - rows[other, :2]).T
    beside = np.abs(ax * dy - ay * dx) / np.maximum(np.hypot(ax, ay), 1e-300)
    same = beside <= lengthscale / _SAME
    away = np.abs(rows[one, 4] - rows[other, 4]) >= _AWAY * lengthscale
    found = away & (same | (sine >= _ANGLE))
    return len(np.unique(np.floor(rows[one[found], :2] / lengthscale), axis=0))


def lasting_text(count: int) -> list[str]:
    """Say that errors which last would not be seen, where a drive crosses itself too seldom.

    Args:
        count: of its crossings.
    """
    if count >= _ENOUGH:
        return []
    seldom = f"crosses itself at {count} place{'' if count == 1 else 's'} only" if count else ""
    return [
        "errors of the sensor that last for seconds would not be seen: the drive "
        f"{seldom or 'does not cross itself'}, and along lanes side by side they look like the field; "
        "lanes across these tell them apart"
    ]
