"""`gp-mapping check`: a sensor that is dead, or that hangs for a while, told by values that are exactly the same."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gp_mapping.core.types import Samples

__all__ = ["SensorFault", "sensor_faults"]

_FEWEST = 50  # equal values in a row: a sensor that rounds coarsely repeats itself, too
_LONGER = 20.0  # times the usual run of equal values
_MOVED = 1.0  # m; standing still, a quiet sensor may well tell the same


class SensorFault(NamedTuple):
    """One sentence. dead: there is nothing in the recording that could be judged beside it."""

    text: str
    dead: bool


def sensor_faults(passes: list[Samples], scale: float, unit: str) -> list[SensorFault]:
    """What is wrong with the sensor itself.

    Args:
        passes: what the sensor told; y (n, C) in SI.
        scale: one display unit in SI.
        unit: its name.

    Returns:
        Nothing where values differ as those of a living sensor do.
    """
    runs = np.concatenate([_runs(samples) for samples in passes] or [np.empty((0, 5))])
    if not len(runs):
        return []

    values = np.concatenate([samples.y.numpy() for samples in passes])
    if len(values) >= _FEWEST and (values == values[0]).all():
        told = ", ".join(f"{v / scale:.4g}" for v in values[0])
        return [SensorFault(f"every one of {len(values)} measurements is exactly {told} {unit}: the sensor is dead or "
                            "not connected, or its driver repeats one value; a map of it says nothing", True)]

    count, seconds, metres, start, _ = runs.T
    usual = float(np.median(count))
    hung = (count >= max(_FEWEST, _LONGER * usual)) & (metres >= _MOVED)
    if not hung.any():
        return []
    worst = int(np.argmax(np.where(hung, count, 0)))
    told = runs[worst, 4] / scale
    share = count[hung].sum() / len(values)
    return [SensorFault(f"the sensor hung ({int(hung.sum())} times, {100 * share:.0f} % of the measurements), at worst "
                        f"for {seconds[worst]:.1f} s and {metres[worst]:.1f} m from stamp {start[worst]:.1f}, at "
                        f"exactly {told:.4g} {unit}: look at its cable and driver, and leave that part out", False)]


def _runs(samples: Samples) -> np.ndarray:
    """Rows of (how many equal in a row, seconds, metres driven meanwhile, first stamp, first value) of one pass."""
    y, x, stamp = samples.y.numpy(), samples.x.numpy(), samples.stamp.numpy()
    first = np.flatnonzero(np.r_[True, (y[1:] != y[:-1]).any(1)])
    last = np.r_[first[1:], len(y)] - 1
    along = np.r_[0.0, np.cumsum(np.linalg.norm(np.diff(x, axis=0), axis=1))]
    return np.stack([last - first + 1.0, stamp[last] - stamp[first], along[last] - along[first], stamp[first],
                     y[first, 0]], 1)
