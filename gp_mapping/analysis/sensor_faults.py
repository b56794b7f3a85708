"""`gp-mapping check`: a sensor that is dead, hangs, drops out or saturates, told by values that are exactly the same.

A living sensor hardly ever tells one number twice to the bit, or, where it rounds, does so with all of its numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gp_mapping.core.types import Samples

__all__ = ["SensorFault", "sensor_faults"]

_FEWEST = 20  # equal values that say something
_OFTEN = 0.02  # share of the measurements
_LONGER = 20.0  # times the usual run of equal values, or the usual count of one value
_MOVED = 1.0  # m; standing still, a quiet sensor may well tell the same
_STILL = 0.1  # of the usual way from one measurement to the next
_LEVELS = 2  # different values that are no field
_STEP = 1.5  # of the sensor's resolution: a run of equal values that ends with no more is one of its levels


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
    runs = np.concatenate([_runs(samples) for samples in passes] or [np.empty((0, 6))])
    if not len(runs):
        return []

    values = np.concatenate([samples.y.numpy() for samples in passes])
    way = sum(
        float(np.linalg.norm(np.diff(samples.x.numpy(), axis=0), axis=1).sum())
        for samples in passes
    )
    moved, n = way >= _MOVED, len(values)
    told, number, counts = np.unique(values, axis=0, return_inverse=True, return_counts=True)
    if len(told) == 1 and n >= (_FEWEST if moved else 2 * _FEWEST):
        return [
            SensorFault(
                f"every one of {n} measurements is exactly {_said(told[0] / scale)} {unit}: the sensor is "
                "dead or not connected, or its driver repeats one value; a map of it says nothing",
                True,
            )
        ]
    often = int(np.argmax(counts))
    stuck = counts[often] >= _FEWEST and counts[often] > n - _FEWEST
    if len(told) <= _LEVELS and n >= 2 * _FEWEST and moved and not stuck:
        return [
            SensorFault(
                f"{n} measurements are one of {len(told)} values ("
                f"{'; '.join(_said(one / scale) for one in told)} {unit}): the sensor is not connected, or "
                "far too coarse for this field; a map of it shows its steps",
                False,
            )
        ]

    hung = _hung(runs, values, n, scale, unit)
    # of a value that comes again and again, the others but seldom: what of it no single pause explains
    usual = float(np.sort(counts)[(len(counts) - 1) // 2])
    begin = np.cumsum(runs[:, 0]).astype(int) - runs[:, 0].astype(int)
    still = runs[:, 2] < _STILL * way / n * (runs[:, 0] - 1.0)
    np.subtract.at(counts, number.reshape(-1)[begin[still]], runs[still, 0].astype(int))
    often = int(np.argmax(counts))
    rest = counts[often] - max((run[0] for run in runs if run[4] == told[often, 0]), default=0)
    if counts[often] < max(_FEWEST, _OFTEN * n, _LONGER * usual) or (
        hung and rest < 0.2 * counts[often]
    ):
        return hung
    ends = [
        name
        for name, extreme in (("smallest", values.min(0)), ("largest", values.max(0)))
        if (told[often] == extreme).all()
    ]
    where = f", the {ends[0]} of all: the end of its range, or" if ends else ":"
    return [
        SensorFault(
            f"in {100 * counts[often] / n:.0f} % of the measurements the sensor tells exactly "
            f"{_said(told[often] / scale)} {unit}{where} a cable or driver that drops out; look at it, and "
            "leave these out",
            False,
        ),
        *hung,
    ]


def _hung(
    runs: np.ndarray, values: np.ndarray, n: int, scale: float, unit: str
) -> list[SensorFault]:
    """Runs of one value over driven ground that end in a leap, as no rounding makes them."""
    count, _, metres, _, _, leap = runs.T
    steps = np.abs(np.diff(values, axis=0)).max(1)
    resolution = float(steps[steps > 0].min()) if (steps > 0).any() else 0.0
    hung = (count >= max(_FEWEST, _LONGER * float(np.median(count)))) & (metres >= _MOVED)
    hung |= (count >= max(_FEWEST, _OFTEN * n)) & (metres >= _MOVED) & (leap > _LONGER * resolution)
    hung &= leap > _STEP * resolution
    if not hung.any():
        return []
    worst = int(np.argmax(np.where(hung, count, 0)))
    _, seconds, way, start, told, _ = runs[worst]
    return [
        SensorFault(
            f"the sensor hung ({int(hung.sum())} times, {100 * count[hung].sum() / n:.0f} % of the "
            f"measurements), at worst for {seconds:.1f} s and {way:.1f} m from stamp {start:.1f}, at "
            f"exactly {told / scale:.4g} {unit}: look at its cable and driver, and leave that part out",
            False,
        )
    ]


def _runs(samples: Samples) -> np.ndarray:
    """Rows of one pass: how many equal in a row, seconds, metres driven meanwhile, first stamp, first value, and the
    larger of the steps that lead to the run and from it.
    """
    y, x, stamp = samples.y.numpy(), samples.x.numpy(), samples.stamp.numpy()
    first = np.flatnonzero(np.r_[True, (y[1:] != y[:-1]).any(1)])
    last = np.r_[first[1:], len(y)] - 1
    along = np.r_[0.0, np.cumsum(np.linalg.norm(np.diff(x, axis=0), axis=1))]
    step = np.r_[0.0, np.abs(y[first[1:]] - y[first[1:] - 1]).max(1), 0.0]
    return np.stack(
        [
            last - first + 1.0,
            stamp[last] - stamp[first],
            along[last] - along[first],
            stamp[first],
            y[first, 0],
            np.maximum(step[:-1], step[1:]),
        ],
        1,
    )


def _said(values: np.ndarray) -> str:
    return ", ".join(f"{v:.4g}" for v in values)
