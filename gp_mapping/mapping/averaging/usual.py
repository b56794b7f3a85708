"""The average of a cell of which nothing is out of the ordinary, in plain Python.

A cell has some twenty samples: as many operations on arrays of so few numbers take longer.
"""

from __future__ import annotations

import math
from itertools import chain, pairwise
from operator import sub
from typing import NamedTuple

import numpy as np
import torch

from gp_mapping.core.types import Samples

__all__ = ["WILD", "UsualCell", "usual_cell"]

WILD = 25.0  # times the typical squared difference; beyond it one is an error (five deviations)
_ROUNDING = 1e-12  # of the largest number: smaller steps are rounding of float64


class UsualCell(NamedTuple):
    """What a cell of several samples tells.

    Attributes:
        means: of its columns by name; None: there is no such column.
        velocity: from the first to the last sample (D,), m/s.
        extent: standard deviation of places along it, m.
        largest: |y| of its samples, SI.
        range: from the least to the largest value, of the channel where it is widest, SI.
        step: smallest step between two of them, SI; inf: there is none.
        alike: whether all are the same.
        steps: squared differences of successive samples, as of step_squares.
        noise: squares as of noise_squares.
        stated: mean white variance that they state, squared SI; None: they state none.
    """

    means: dict[str, list[float] | None]
    velocity: list[float]
    extent: float
    largest: float
    range: float
    step: float
    alike: bool
    steps: list[float]
    noise: list[float]
    stated: float | None

    def samples(self, count: int, variance: float) -> Samples:
        """The cell as a measurement.

        Args:
            count: of its samples.
            variance: white variance of one of them, squared SI.
        """
        there = {name: value for name, value in self.means.items() if value is not None}
        there |= {"velocity": self.velocity, "extent": [self.extent]}
        there |= {"count": [float(count)], "sensor_variance": [variance]}
        # one after the other in one array: a tensor of its own for each takes twice the time
        numbers = torch.from_numpy(np.array(list(chain.from_iterable(there.values()))))
        columns = dict(zip(there, numbers.split_with_sizes(list(map(len, there.values())))))
        for name in _WIDE & columns.keys():
            columns[name] = columns[name][None]
        return Samples.of_checked(columns)


_WIDE = frozenset({"x", "y", "velocity", "heading"})  # columns with several numbers in a row


def usual_cell(
    x: list[list[float]],
    y: list[list[float]],
    stamps: list[float],
    sensor: list[float] | None,
    heading: list[list[float]] | None,
    position: list[float] | None,
) -> UsualCell | None:
    """Average the samples of a cell.

    Args:
        x: places (D), m.
        y: values (C), SI.
        stamps: s.
        sensor: known white variances, squared SI; 0: unknown.
        heading: (2,) unit vectors.
        position: variances of x, m².

    Returns:
        None where they are fewer than three or took no time, or some state variances of another
        kind than others, or a mean is not finite.
    """
    n, elapsed = len(stamps), stamps[-1] - stamps[0]
    if n < 3 or elapsed <= 0.0 or not (_agree(sensor) and _agree(position)):
        return None

    places, values = list(zip(*x)), list(zip(*y))
    velocity = [(column[-1] - column[0]) / elapsed for column in places]
    low, high = list(map(min, values)), list(map(max, values))
    largest = max(max(map(abs, low)), max(map(abs, high)))
    steps, step = _steps(values, _ROUNDING * largest)
    stated = None if sensor is None else _mean(sensor)
    means = {
        "x": list(map(_mean, places)),
        "y": list(map(_mean, values)),
        "stamp": [_mean(stamps)],
        "heading": None if heading is None else list(map(_mean, zip(*heading))),
        "position_variance": None if position is None else [_mean(position)],
    }
    cell = UsualCell(
        means,
        velocity,
        _extent(places, velocity),
        largest,
        max(map(sub, high, low)),
        step,
        low == high,
        steps,
        _noise(values, stamps),
        stated if stated else None,
    )
    finite = map(math.isfinite, [*means["x"], *means["y"], *velocity, cell.extent, *cell.noise])
    return cell if all(finite) else None


def _agree(variances: list[float] | None) -> bool:
    """Whether none of the samples states a variance, or all do, and none one far beyond others."""
    if variances is None:
        return True
    return max(variances) <= WILD * min(variances)  # 0: states none


def _mean(values) -> float:
    """Mean about the first: coordinates may be 1e6 m, and lose their millimetres in a sum."""
    first = values[0]
    return first + sum([value - first for value in values]) / len(values)


def _extent(places: list[tuple[float, ...]], velocity: list[float]) -> float:
    """Standard deviation of places along a velocity, m.

    Args:
        places: coordinates of all, for each of D axes, m.
        velocity: (D,) m/s.
    """
    speed = math.hypot(*velocity)
    if not speed > 0.0:
        return 0.0
    along = [0.0] * len(places[0])
    for column, v in zip(places, velocity):
        first, unit = column[0], v / speed
        along = [a + (value - first) * unit for a, value in zip(along, column)]
    middle = sum(along) / len(along)
    return math.sqrt(sum([(a - middle) * (a - middle) for a in along]) / len(along))


def _steps(values: list[tuple[float, ...]], least: float) -> tuple[list[float], float]:
    """Squares as of step_squares, and the smallest step above `least`, SI; inf: there is none.

    Args:
        values: of all samples, for each of C channels, SI.
        least: SI.
    """
    smallest, total = math.inf, [0.0] * (len(values[0]) - 1)
    for column in values:
        steps = list(map(sub, column[1:], column))
        smallest = min([smallest, *(size for size in map(abs, steps) if size > least)])
        total = [square + step * step for square, step in zip(total, steps)]
    return [square / len(values) for square in total], smallest


def _noise(values: list[tuple[float, ...]], stamps: list[float]) -> list[float]:
    """Squares as of noise_squares.

    Args:
        values: of all samples, for each of C channels, SI.
        stamps: s.
    """
    between = list(map(sub, stamps[1:], stamps))
    shares = [
        after / (before + after) if before + after > 0.0 else 0.5
        for before, after in pairwise(between)
    ]
    total = [0.0] * len(shares)
    for column in values:
        errors = [
            at - a * before - (1.0 - a) * after
            for a, before, at, after in zip(shares, column, column[1:], column[2:])
        ]
        total = [square + error * error for square, error in zip(total, errors)]
    channels = len(values)
    return [
        2.0 * square / (channels * (1.0 + a * a + (1.0 - a) * (1.0 - a)))
        for square, a in zip(total, shares)
    ]
