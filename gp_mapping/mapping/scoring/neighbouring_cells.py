"""White noise of samples that are alone in their cells, from the cells before and after them.

A sensor with less than one sample in a cell's length has no cell mates that would tell its noise
(neighbours.py). The samples before and after it in its pass do, but for the field's own change:

    e = y_i − a y_{i−k} − (1 − a) y_{i+k},     u = e²/c,     c = 1 + a² + (1 − a)²
    E u = σ² + F,     F = wᵀ K w / c,     w = (−a, 1, −(1 − a))

with a such that the point of the line that it stands for is next to place i: a slope drops out. K
is the field's covariance by the map's hyper-parameters, as they are when σ² is asked for. With
k = 1 and weights 1/(σ² + F)²,

    σ² = mean(u − F) − rough

A field that is smoother than the kernel has less than F, so σ² is too small, which a floor may be.
One that is rougher in places has more. That shows with k = 2, where noise is the same and an edge
has twice as much, a smoother field up to 16 times: what u_2 − u_1 has beyond F_2 − F_1, and beyond
its own standard deviation, is `rough`.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise
from statistics import median

import numpy as np
import torch

from gp_mapping.core.kernels import make_kernel
from gp_mapping.core.types import Samples

__all__ = ["NeighbouringCells"]

_WINDOW = 1000  # newest differences that are kept
_LATER = 20  # new ones after which σ² is found again
_FEWEST = 20  # that tell anything
_WILD = 25.0  # times the typical square; beyond it one is an error, or an edge (five deviations)
_MEDIAN_OF_SQUARE = 0.4549  # of a standard normal
_ROUNDS = 10  # of σ², on which its weights depend
_LEAST = 1e-3  # of the typical square: σ² in the weights at least
# n times the variance of a mean of n squares, σ = 1: 2 Σ ρ² of the autocorrelations ρ of e, which
# are −2/3 and 1/6 for a = 1/2; of u_2 − u_1, whose cross-correlations are 2/3, −1/6, −1/3, 1/6
_ONE = 2.0 * (1.0 + 2.0 * (4.0 / 9.0 + 1.0 / 36.0))
_BOTH = 2.0 * _ONE - 4.0 * (4.0 / 9.0 + 2.0 * (1.0 / 36.0 + 1.0 / 9.0 + 1.0 / 36.0))

_Sample = tuple[list[float], list[float]]


class NeighbouringCells:
    """White variance of one sample from cells of one sample each. Bounded memory.

    Attributes:
        variance: σ² less its standard deviation, squared SI: it is at least that; 0: not known.
        count: differences that tell it, each by its weight.
        apart: median distance of the newest such samples, m; 0: not known.
    """

    def __init__(self) -> None:
        self.variance = self.count = self.apart = 0.0
        # place and value of the newest samples of a pass that were alone in their cells
        self._newest: deque[_Sample] = deque(maxlen=5)
        self._pass = -1
        # u, a and the sides of the triangle of places, for k = 1 and for k = 2
        self._rows: deque[tuple[float, ...]] = deque(maxlen=_WINDOW)
        self._fresh = 0

    @property
    def is_due(self) -> bool:
        """Whether σ² is to be found again."""
        return self._fresh >= _LATER

    def add(self, cell: Samples, passes: int) -> None:
        """Take a cell; one of several samples ends the series.

        Args:
            cell: of one row, or of some.
            passes: number of its pass.
        """
        alone = len(cell) == 1 and cell.count is not None and float(cell.count[0]) == 1.0
        if passes != self._pass or not alone:
            self._newest.clear()
        self._pass = passes
        if not alone:
            return

        self._newest.append((cell.x[0].tolist(), cell.y[0].tolist()))
        if len(self._newest) == self._newest.maxlen:
            first, before, at, after, last = self._newest
            self.apart = median(math.dist(x, y) for (x, _), (y, _) in pairwise(self._newest))
            self._rows.append((*_difference(before, at, after), *_difference(first, at, last)))
            self._fresh += 1

    def find(self, kernel: str, lengthscale: float, signal: float) -> None:
        """Find σ² from the newest differences.

        Args:
            kernel: name of the field's covariance function.
            lengthscale: of the field, m.
            signal: its variance, squared SI.
        """
        self._fresh = 0
        rows = np.array(self._rows).reshape(-1, 10)
        first, second = rows[:, :5], rows[:, 5:]
        shares = [
            signal * _share(part, kernel, lengthscale).clip(min=0.0) for part in (first, second)
        ]
        self.variance, self.count = _white(first[:, 0], shares[0], second[:, 0], shares[1])

    def with_mates(self, single: float, averaged: float, mates: float) -> tuple[float, float]:
        """White variance of one sample, and what averaging leaves of it in a cell, squared SI.

        Args:
            single: of one sample as cell mates tell it, or the sensor states it; 0: unknown.
            averaged: what averaging leaves of that.
            mates: differences that tell it.
        """
        if not self.variance or mates == math.inf:
            return single, averaged
        if not single:
            return self.variance, self.variance
        both = (mates * single + self.count * self.variance) / (mates + self.count)
        return both, averaged * both / single

    def join(self, other: NeighbouringCells) -> None:
        """Add another's differences; beyond the window each gives up the same fraction."""
        parts, total = (list(self._rows), list(other._rows)), len(self._rows) + len(other._rows)
        keep = [len(rows) * min(1.0, _WINDOW / max(1, total)) for rows in parts]
        for rows, most in zip(parts, map(int, keep)):
            self._rows.extend(rows[len(rows) - most :])
        while len(self._rows) > sum(map(int, keep)):  # the own ones stand first
            self._rows.popleft()
        self._fresh = max(self._fresh, len(other._rows))

    # --- resume -----------------------------------------------------------------------------------
    def state_dict(self) -> dict:
        """For an exact resume."""
        return {
            "variance": self.variance,
            "count": self.count,
            "apart": self.apart,
            "newest": [[list(x), list(y)] for x, y in self._newest],
            "pass": self._pass,
            "fresh": self._fresh,
            "rows": torch.tensor(list(self._rows), dtype=torch.float64).reshape(-1, 10),
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken."""
        self.variance, self.count = float(state["variance"]), float(state["count"])
        self._newest.extend((list(map(float, x)), list(map(float, y))) for x, y in state["newest"])
        self._pass, self._fresh = int(state["pass"]), int(state["fresh"])
        self.apart = float(state.get("apart", 0.0))  # absent in maps of an older version
        self._rows.extend(map(tuple, torch.as_tensor(state["rows"]).tolist()))


def _difference(before: _Sample, at: _Sample, after: _Sample) -> tuple[float, ...]:
    """u, the mean over components, a, and the sides of the triangle of three places.

    Args:
        before: place and value of i − k.
        at: of i.
        after: of i + k.
    """
    (p, old_values), (q, values), (r, new_values) = before, at, after
    way = [v - u for u, v in zip(p, r)]
    square = sum(v * v for v in way)
    along = sum((v - u) * w for u, v, w in zip(q, r, way))
    a = min(1.0, max(0.0, along / square)) if square > 0.0 else 0.5
    errors = [y - a * old - (1.0 - a) * new for old, y, new in zip(old_values, values, new_values)]
    c = 1.0 + a**2 + (1.0 - a) ** 2
    u = sum(e * e for e in errors) / (c * len(errors))
    return u, a, math.dist(p, q), math.dist(q, r), math.dist(p, r)


def _share(rows: np.ndarray, kernel: str, lengthscale: float) -> np.ndarray:
    """F of differences for a field of variance 1: (n,).

    Args:
        rows: as of _difference (n, 5).
        kernel: name of the field's covariance function.
        lengthscale: of the field, m.
    """
    a, sides = rows[:, 1], torch.from_numpy(rows[:, 2:] / lengthscale)
    to_before, to_after, across = make_kernel(kernel, 1.0, 1.0).correlation(sides**2).numpy().T
    c = 1.0 + a**2 + (1.0 - a) ** 2
    both = a * (1.0 - a) * across - a * to_before - (1.0 - a) * to_after
    return 1.0 + 2.0 * both / c


def _white(
    first: np.ndarray, share: np.ndarray, second: np.ndarray, second_share: np.ndarray
) -> tuple[float, float]:
    """σ² less its standard deviation, and how many differences tell it; zeros: nothing is known.

    Args:
        first: u (n,) for k = 1.
        share: F of these.
        second: u (n,) for k = 2.
        second_share: F of these.
    """
    typical = float(np.median(first)) / _MEDIAN_OF_SQUARE if len(first) >= _FEWEST else 0.0
    if not typical:  # also of a sensor that tells one number over and over
        return 0.0, 0.0
    usual = (first <= _WILD * (typical + share)) & (second <= _WILD * (typical + second_share))
    first, share, second, second_share = (
        part[usual] for part in (first, share, second, second_share)
    )

    found, change = typical, (second - first) - (second_share - share)
    for _ in range(_ROUNDS):
        at_least = max(found, _LEAST * typical)
        weight, second_weight = (at_least + share) ** -2.0, (at_least + second_share) ** -2.0
        found = float((weight * (first - share)).sum() / weight.sum())
    if found <= 0.0:
        return 0.0, 0.0

    count = float(((found / (found + share)) ** 2).sum())
    if count < _FEWEST:
        return 0.0, 0.0
    more = float((second_weight * change).sum() / second_weight.sum())
    rough = max(0.0, more - math.sqrt(_BOTH / float(second_weight.sum())))
    return max(0.0, (found - rough) * (1.0 - math.sqrt(_ONE / count))), count
