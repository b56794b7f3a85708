"""Which samples of a pass are gross errors, by the samples around them.

Along a pass a field goes on from sample to sample: a random walk with a drift, its steps of the
standard deviation s, that jumps where the field has an edge. A gross error is none of its steps:
the walk goes on from before it. So of all choices of samples to leave out that one is taken which
costs least,

    Σ min(½ z², JUMP) + OUT × left out,     z = (y_i − y_j − drift (t_i − t_j)) / (s √(i − j))

with j, i successive ones that stay, the drift the median rate of all steps, and s √2 white standard
deviations, or the steps' own robust one where that is larger: where the field is steep or curved.

OUT is that of two steps to and from a value GROSS white standard deviations away, JUMP lies in the
middle between one and two OUT: a sample that no other agrees with is an error, two that agree are
the other side of an edge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise, takewhile
from operator import gt, lt, sub
from statistics import median_low

__all__ = ["GROSS", "far_from_median", "is_narrow", "wild_samples"]

GROSS = 6.0  # standard deviations beyond which a sample is a gross error
_OUT = 0.5 * GROSS**2
_JUMP = 1.5 * _OUT
_REACH = 9  # samples from one that stays to the next one, at most
_NORMAL = 1.4826  # standard deviations of a normal in its median absolute deviation


def is_narrow(y: Sequence[Sequence[float]], least: float) -> bool:
    """Whether no two of the samples are far enough apart for one of them to be left out.

    All steps have ½ z² ≤ ½ OUT then: leaving out m samples in a row saves at most (m + 1) of them,
    which is no more than the m OUT that it costs. Nor is any so far from their median.

    Args:
        y: values (n, C), SI.
        least: the white standard deviation at least, SI.
    """
    return all(max(column) - min(column) <= GROSS * least for column in zip(*y))


def wild_samples(
    y: Sequence[Sequence[float]], stamp: Sequence[float], least: float
) -> tuple[set[int], set[int]]:
    """Find the gross errors among successive samples of a pass.

    Those that lie between both sides of an edge are none, nor are several at one end that go ever
    farther: an edge that is seen in part.

    Args:
        y: values (n, C), SI.
        stamp: (n,) s.
        least: white standard deviation of one of them, SI, at least; above 0.

    Returns:
        Their numbers, and what these would be if the last sample had not come yet.
    """
    if len(y) < 2 or is_narrow(y, least):
        return set(), set()
    channels = [_scaled(column, stamp, least) for column in zip(*y)]
    if all(abs(step) <= GROSS * least for *_, steps, _ in channels for step in steps):
        return set(), set()

    cost, earlier = _least_costs(channels, stamp)
    all_of_them = _left_out(y, _staying(cost, earlier))
    return all_of_them, _left_out(y[:-1], _staying(cost[:-1], earlier))


def _left_out(y: Sequence[Sequence[float]], stay: list[int]) -> set[int]:
    """Samples that do not stay, but for those at an edge.

    Args:
        y: values (n, C), SI.
        stay: numbers of those that stay, in order.
    """
    wild = set(range(len(y))).difference(stay)
    for earlier, later in pairwise(stay):
        ends = list(zip(y[earlier], y[later]))
        wild -= {
            i
            for i in range(earlier + 1, later)
            if all(min(e) <= value <= max(e) for e, value in zip(ends, y[i]))
        }
    for end in range(stay[0], -1, -1), range(stay[-1], len(y)):
        further = _going_on([y[i] for i in end])
        if further > 2:
            wild.difference_update(end[:further])
    return wild


def far_from_median(y: Sequence[Sequence[float]], least: float) -> set[int]:
    """Find samples farther than GROSS robust standard deviations from their median.

    Args:
        y: values (n, C), SI.
        least: the standard deviation at least, SI.
    """
    far: set[int] = set()
    for column in zip(*y):
        middle = median_low(column)
        away = [abs(value - middle) for value in column]
        most = GROSS * max(_NORMAL * median_low(away), least)
        far.update(i for i, value in enumerate(away) if value > most)
    return far


def _scaled(
    column: Sequence[float], stamp: Sequence[float], least: float
) -> tuple[float, float, list[float], Sequence[float]]:
    """The drift of a channel, 1/s, its steps without the drift, and its values."""
    steps, times = list(map(sub, column[1:], column)), list(map(sub, stamp[1:], stamp))
    rates = [step / time for step, time in zip(steps, times) if time > 0.0]
    drift = median_low(rates) if rates else 0.0
    # a step that is nearer to none than to the drift is no farther than it is
    steps = [min(step, step - drift * time, key=abs) for step, time in zip(steps, times)]
    spread = max(math.sqrt(2.0) * least, _NORMAL * median_low(map(abs, steps)))
    return drift, 1.0 / spread, steps, column


def _least_costs(channels, stamp: Sequence[float]) -> tuple[list[float], list[int]]:
    """Least cost of all up to each sample, where it stays, and which stays before it; −1: none.

    By dynamic programming.

    Args:
        channels: of each as of _scaled.
        stamp: (n,) s.
    """
    n = len(stamp)
    cost, earlier = [_OUT * i for i in range(n)], [-1] * n
    for i in range(n):
        for j in range(i - 1, max(i - _REACH, 0) - 1, -1):
            square = 0.0
            for drift, scale, _, column in channels:
                step = column[i] - column[j]
                z = scale * min(step, step - drift * (stamp[i] - stamp[j]), key=abs)
                square = max(square, z * z)
            total = cost[j] + _OUT * (i - j - 1) + min(0.5 * square / (i - j), _JUMP)
            if total < cost[i]:
                cost[i], earlier[i] = total, j
    return cost, earlier


def _staying(cost: list[float], earlier: list[int]) -> list[int]:
    """Numbers of the samples that stay, of as many as have a cost (as of _least_costs)."""
    n = len(cost)
    at = min(range(n - 1, -1, -1), key=lambda i: cost[i] + _OUT * (n - 1 - i))
    stay = []
    while at >= 0:
        stay.append(at)
        at = earlier[at]
    return stay[::-1]


def _going_on(y: list[Sequence[float]]) -> int:
    """How many of (n, C) values, from the first on, only rise or only fall in each channel."""
    return min(
        1 + max(len(list(takewhile(bool, map(goes, column, column[1:])))) for goes in (lt, gt))
        for column in zip(*y)
    )
