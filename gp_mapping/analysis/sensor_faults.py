"""`gp-mapping check`: a sensor that is dead, hangs, drops out or saturates, found by equal values.

A working sensor hardly ever reads one number twice to the bit, or, where it rounds, does so with
all of its numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from gp_mapping.core.types import Samples
from gp_mapping.mapping.repeated.on_change import OnChange
from gp_mapping.mapping.repeated.range_ends import RangeEnd, RangeEnds

__all__ = ["SensorFault", "sensor_faults"]

_FEWEST = 20  # equal values, at least, that mean something
_OFTEN = 0.02  # fraction of the measurements
_LONGER = 20.0  # times the usual run of equal values, or the usual count of one value
_PEAK = 4.0  # times the counts of the two numbers next to one; a level of a field has about half
_MOVED = 1.0  # m; at standstill a quiet sensor may well repeat a value
_STILL = 0.1  # fraction of the usual way from one measurement to the next
_CELL = 0.05  # m; of the way, in which one measurement is looked at for the end of the range
_LEVELS = 2  # different values, at most, that are no field
# Times the sensor's resolution: a run that ends with a smaller step is one of its levels.
_STEP = 1.5


class SensorFault(NamedTuple):
    """A fault of the sensor.

    Attributes:
        text: a sentence.
        dead: nothing else in the recording can be judged.
    """

    text: str
    dead: bool


def sensor_faults(passes: list[Samples], scale: float, unit: str) -> list[SensorFault]:
    """Return what is wrong with the sensor itself, or with how it is published.

    Args:
        passes: what the sensor measured; y (n, C) in SI.
        scale: one display unit in SI.
        unit: its name.

    Returns:
        Nothing where values differ as those of a working sensor do.
    """
    ends = _range_ends(passes)
    at_ends = [SensorFault(end.note(scale, unit), False) for end in ends]
    # what is said of an end of the range is not said again as a number that repeats
    inside = [samples[_is_inside(samples, ends)] for samples in passes] if ends else passes
    return [*at_ends, *_repeats(inside, scale, unit), *_on_change(passes, scale, unit)]


def _range_ends(passes: list[Samples]) -> list[RangeEnd]:
    """Return the ends of the sensor's range at which it was."""
    watch = RangeEnds(_CELL)
    for samples in passes:
        watch.begin_pass()
        if len(samples) and samples.y.shape[1] == 1:
            watch.add(samples.y[:, 0].tolist(), samples.x.tolist())
    return watch.found


def _is_inside(samples: Samples, ends: list[RangeEnd]) -> torch.Tensor:
    """Return which measurements (n,) are at none of these ends of the range."""
    inside = torch.ones(len(samples), dtype=torch.bool)
    for end in ends:
        inside &= samples.y[:, 0] != end.value
    return inside


def _on_change(passes: list[Samples], scale: float, unit: str) -> list[SensorFault]:
    """Return a fault where only changes of a sensor that rounds are published."""
    watch = OnChange()
    for samples in passes:
        watch.begin_pass()
        if len(samples) and samples.y.shape[1] == 1:
            watch.correct_all(samples.y.tolist(), samples.x.tolist(), slice(0, len(samples)))
    return [SensorFault(text, False) for text in watch.notes(scale, unit)]


def _repeats(passes: list[Samples], scale: float, unit: str) -> list[SensorFault]:
    """As `sensor_faults`, of equal values."""
    passes = [samples for samples in passes if len(samples)]
    if not passes:
        return []

    runs = np.concatenate([_runs(samples) for samples in passes])
    values = np.concatenate([samples.y.numpy() for samples in passes])
    way = sum(
        float(np.linalg.norm(np.diff(samples.x.numpy(), axis=0), axis=1).sum())
        for samples in passes
    )

    moved, n = way >= _MOVED, len(values)
    distinct, number, counts = np.unique(values, axis=0, return_inverse=True, return_counts=True)

    # At standstill a quiet sensor may repeat a value: then twice as many must be equal.
    if len(distinct) == 1 and n >= (_FEWEST if moved else 2 * _FEWEST):
        return [
            SensorFault(
                f"every one of {n} measurements is exactly {_formatted(distinct[0] / scale)} {unit}: the sensor is "
                "dead or not connected, or its driver repeats one value; a map of it says nothing",
                True,
            )
        ]

    often = int(np.argmax(counts))
    stuck = counts[often] >= _FEWEST and counts[often] > n - _FEWEST
    if len(distinct) <= _LEVELS and n >= 2 * _FEWEST and moved and not stuck:
        return [
            SensorFault(
                f"{n} measurements are one of {len(distinct)} values ("
                f"{'; '.join(_formatted(v / scale) for v in distinct)} {unit}): the sensor is not connected, or "
                "far too coarse for this field; a map of it shows its steps",
                False,
            )
        ]

    # The row at which each run begins, and which of the distinct values it repeats.
    begin = np.cumsum(runs[:, 0]).astype(int) - runs[:, 0].astype(int)
    value_of = number.reshape(-1)[begin]

    hung = _hung(runs, begin, values, scale, unit)
    # Repeats at standstill are no fault: they are subtracted from the count of their value.
    usual = float(np.sort(counts)[(len(counts) - 1) // 2])
    still = runs[:, 2] < _STILL * way / n * (runs[:, 0] - 1.0)
    np.subtract.at(counts, value_of[still], runs[still, 0].astype(int))
    often = int(np.argmax(counts))

    # What is left of the most frequent value without its longest run.
    remaining = counts[often] - runs[value_of == often, 0].max(initial=0.0)
    # A counter, or a sensor that rounds, tells nearly all of its numbers often: one is too frequent
    # where those next to it are not.
    others = np.delete(counts, often)
    coarse = others[others >= _FEWEST].sum() > 0.5 * others.sum()
    next_to_it = counts[max(0, often - 1) : often + 2].sum() - counts[often] if coarse else 0.0
    if counts[often] < max(_FEWEST, _OFTEN * n, _LONGER * usual, _PEAK * next_to_it) or (
        hung and remaining < 0.2 * counts[often]
    ):
        return hung

    # The end of the sensor's range, where it is an extreme of all measurements.
    ends = [
        name
        for name, extreme in (("smallest", values.min(0)), ("largest", values.max(0)))
        if (distinct[often] == extreme).all()
    ]
    # at the end of the range a repeated number is no hang
    if ends:
        hung = _hung(runs[value_of != often], begin[value_of != often], values, scale, unit)
    where = f", the {ends[0]} of all: the end of its range, or" if ends else ":"
    return [
        SensorFault(
            f"in {100 * counts[often] / n:.0f} % of the measurements the sensor tells exactly "
            f"{_formatted(distinct[often] / scale)} {unit}{where} a cable or driver that drops out; look at it, and "
            "leave these out",
            False,
        ),
        *hung,
    ]


def _hung(
    runs: np.ndarray, begin: np.ndarray, values: np.ndarray, scale: float, unit: str
) -> list[SensorFault]:
    """Return a fault where one value repeats on driven ground and then leaps.

    Rounding makes no such leap.

    Args:
        runs: (R, 5), as of `_runs`.
        begin: (R,) the measurement at which each begins.
        values: (n, C) SI, of all measurements.
        scale: one display unit in SI.
        unit: its name.
    """
    n = len(values)
    if not len(runs):
        return []
    count, _, metres, _, leap = runs.T
    # The smallest step between two measurements is taken for the sensor's resolution.
    steps = np.abs(np.diff(values, axis=0)).max(1)
    resolution = float(steps[steps > 0].min()) if (steps > 0).any() else 0.0

    # Much longer than usual, or long and ending in a leap far above the resolution.
    hanging = (count >= max(_FEWEST, _LONGER * float(np.median(count)))) & (metres >= _MOVED)
    hanging |= (
        (count >= max(_FEWEST, _OFTEN * n)) & (metres >= _MOVED) & (leap > _LONGER * resolution)
    )
    hanging &= leap > _STEP * resolution

    if not hanging.any():
        return []

    worst = int(np.argmax(np.where(hanging, count, 0)))
    _, seconds, way, start, _ = runs[worst]
    stuck = _formatted(values[begin[worst]] / scale)
    return [
        SensorFault(
            f"the sensor hung ({int(hanging.sum())} times, {100 * count[hanging].sum() / n:.0f} % of the "
            f"measurements), at worst for {seconds:.1f} s and {way:.1f} m from stamp {start:.1f}, at "
            f"exactly {stuck} {unit}: look at its cable and driver, and leave that part out",
            False,
        )
    ]


def _runs(samples: Samples) -> np.ndarray:
    """Return a row for each run of equal values in one pass.

    Columns are: number of values, seconds, metres driven meanwhile, first stamp, and the larger of
    the steps that lead to the run and from it.
    """
    y, x, stamp = samples.y.numpy(), samples.x.numpy(), samples.stamp.numpy()
    # Runs begin where any channel changes.
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
            np.maximum(step[:-1], step[1:]),
        ],
        1,
    )


def _formatted(values: np.ndarray) -> str:
    """Format the channels of a value."""
    return ", ".join(f"{v:.4g}" for v in values)
