"""Measurements of which only the side of a threshold counts, or that are at an end of a range.

A cell keeps how many lay on which side, and how many were at which end.

The mean of a cell would say on which side most of its measurements lie, and that as one
measurement: where three of ten lie above the threshold, all cells lie below it. n measurements of
which k lie above say what k that do and n − k that do not say together, so a cell has a row for
each side, at one place.

Nor is the mean of numbers of which some are the end of the sensor's range a value of the field.
Those inside have a row, with their mean, and those at either end one, with that end.
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import torch
from torch import Tensor

from gp_mapping.core.types import Samples

__all__ = ["by_limits", "by_side", "fractions_above"]


def by_side(cell: Samples, y: np.ndarray, threshold: float) -> Samples:
    """A cell as one row for each side of the threshold that its measurements lie on.

    Args:
        cell: the averaged cell, one row, with its count.
        y: the values that it averages, (n, C).
        threshold: in their unit; the side above is without it. Channels have a side each.

    Returns:
        One row, or two, of several channels up to 2^C: each the mean of its values, weighing as
        many as they are.
    """
    return _rows_of(cell, y, y > threshold)


def by_limits(cell: Samples, y: np.ndarray, limits: tuple[float, float]) -> Samples:
    """A cell as one row for its measurements within limits, and one for those at either limit.

    The noise of a row at a limit is that of one measurement, for a mean of equal numbers does not
    say that noise is less.

    Args:
        cell: the averaged cell, one row, with its count and sensor variance.
        y: the values that it averages, (n, 1).
        limits: the lower and the upper one, in their unit.

    Returns:
        One row to three.
    """
    low, high = limits
    sides = (y >= high).astype(int) - (y <= low).astype(int)
    if not sides.any():
        return cell
    rows = _rows_of(cell, y, sides)
    held = rows.y.clamp(low, high)
    at_limit = ((held <= low) | (held >= high))[:, 0]
    variance = torch.where(at_limit, rows.count, 1.0) * rows.sensor_variance
    return replace(rows, y=held, sensor_variance=variance)


def _rows_of(cell: Samples, y: np.ndarray, side: np.ndarray) -> Samples:
    """A cell as one row for each side, (n, C), that its measurements y (n, C) are of."""
    sides, number = np.unique(side, axis=0, return_inverse=True)
    number = number.reshape(-1)
    own = [y[number == side] for side in range(len(sides))]

    # a mean of equal numbers may be rounded to the other side
    means = np.array([np.clip(part.mean(0), part.min(0), part.max(0)) for part in own])
    # whole numbers whose sum is the cell's: of a full cell not all of its measurements are kept
    ends = np.floor(float(cell.count[0]) * np.cumsum([len(part) for part in own]) / len(y) + 0.5)
    columns = {f.name: getattr(cell, f.name) for f in fields(cell)}
    columns = {
        name: None if column is None else column.repeat_interleave(len(own), 0)
        for name, column in columns.items()
    }
    return Samples(
        **columns
        | {"y": torch.from_numpy(means), "count": torch.from_numpy(np.diff(ends, prepend=0.0))}
    )


def fractions_above(cells: Samples, threshold: float) -> tuple[Tensor, Tensor]:
    """Return places in order, (N', D) m, and which share of the measurements at each lies above.

    Args:
        cells: rows at one place follow each other.
        threshold: in the unit of y.

    Returns:
        The places, and the shares (N', C).
    """
    above = (cells.y > threshold).double()
    count = torch.ones(len(cells), dtype=torch.float64) if cells.count is None else cells.count
    x, place = torch.unique_consecutive(cells.x, dim=0, return_inverse=True)
    total = torch.zeros(len(x), dtype=torch.float64).index_add_(0, place, count)
    share = torch.zeros((len(x), above.shape[1]), dtype=torch.float64)
    return x, share.index_add_(0, place, count[:, None] * above) / total[:, None]
