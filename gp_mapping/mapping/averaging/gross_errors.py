"""Which samples of a pass are gross errors, by the samples around them."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

__all__ = ["GROSS", "deviations_from_line", "near_line", "near_median"]

GROSS = 6.0  # robust standard deviations beyond which a sample is a gross error
_BESIDE = 3.0  # of them within which two neighbours agree
_NORMAL = 1.4826  # standard deviations of a normal in its median absolute deviation
_EARLIER, _LATER = np.triu_indices(5, 1)  # all pairs of five


def near_median(y: np.ndarray, least: float) -> np.ndarray:
    """Which samples lie within GROSS robust standard deviations of the median: (n,) bool.

    Args:
        y: (n, C), SI.
        least: the standard deviation at least, SI.
    """
    deviation = np.abs(y - _median(y))
    return (deviation <= GROSS * np.maximum(_NORMAL * _median(deviation), least)).all(1)


def near_line(y: np.ndarray, stamp: np.ndarray, good: np.ndarray, least: float) -> np.ndarray:
    """Which samples lie within GROSS robust standard deviations of their neighbours' line.

    Those that are found are left out, and the others looked at again. An error moves the lines of
    its neighbours, too, so of five the farthest goes first. At an edge of the field a line may run
    through either side: a sample that a good neighbour agrees with is no error.

    Args:
        y: (n, C), SI, in order of time.
        stamp: (n,) s.
        good: (n,) bool, which of them are good by other judges.
        least: the standard deviation at least, SI.

    Returns:
        (n,) bool.
    """
    good = good.copy()
    while good.sum() >= 5:
        deviation = np.abs(deviations_from_line(y[good], stamp[good]))
        share = (deviation / np.maximum(_NORMAL * _median(deviation), least)).max(1)
        around = sliding_window_view(np.pad(share, 2), 5).max(1)
        wild = (share > GROSS) & (share == around)
        if not wild.any():
            break
        good[np.flatnonzero(good)[wild]] = False

    if good.all() or not good.any():
        return good
    kept, lost = np.flatnonzero(good), np.flatnonzero(~good)
    place = np.searchsorted(kept, lost)
    beside = kept[[np.maximum(place - 1, 0), np.minimum(place, len(kept) - 1)]]
    good[lost] = (np.abs(y[beside] - y[lost]) <= _BESIDE * least).all(2).any(0)
    return good


def deviations_from_line(y: np.ndarray, stamp: np.ndarray) -> np.ndarray:
    """Return how far each value is from a robust line through it and its neighbours: (n, C), n ≥ 5.

    The line has the median slope of all pairs among the five values nearest in order, and runs
    through their median. One of five may be wild; a slope of the field is no deviation.

    Args:
        y: (n, C), in order of time.
        stamp: (n,) s.

    Reference:
        Sen 1968, Estimates of the regression coefficient based on Kendall's tau.
    """
    n = len(y)
    if not (stamp[1:] > stamp[:-1]).all():  # of one moment: by their order
        stamp = np.arange(float(n))
    window = np.clip(np.arange(n) - 2, 0, n - 5)[:, None] + np.arange(5)
    times, values = stamp[window] - stamp[:, None], y[window]
    between = times[:, _LATER] - times[:, _EARLIER]
    slopes = (values[:, _LATER] - values[:, _EARLIER]) / between[:, :, None]
    slopes.sort(1)
    values = values - 0.5 * (slopes[:, 4] + slopes[:, 5])[:, None] * times[:, :, None]
    values.sort(1)
    return y - values[:, 2]


def _median(values: np.ndarray) -> np.ndarray:
    """Median of each column of (n, C): (C,), the lower of two middle values."""
    return np.sort(values, axis=0)[(len(values) - 1) // 2]
