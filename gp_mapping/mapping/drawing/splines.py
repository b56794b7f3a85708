"""Quintic splines from the points of a lattice to the cells of a grid.

A tensor-product spline S(y, x) = Σ_ij A_i(y) f_ij B_j(x): along one axis, then along the other. On
a processor an axis is a banded prefilter and a sparse evaluation; on a card, where products are
quick and small steps are not, it is one matrix.

A quintic misses what lies between points by h⁶, a cubic by h⁴: in the valleys of the variance along
the path of a quiet sensor, which are few points wide, a third to an eighth as much.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.interpolate import BSpline, make_interp_spline
from scipy.sparse.linalg import splu
from torch import Tensor

__all__ = ["CardSplines", "spline_operator", "variance_bound"]

_DEGREE = 5
# Of the least variance around a cell: a valley that passes between the nearest points is deeper
# there than at any of them, and those along it are nearer to its floor.
_SURER = 1.0 / 64.0


def spline_operator(nodes: np.ndarray, points: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Spline interpolation between two sets of places along an axis.

    It is a prefilter, which is factored here, and a sparse evaluation.

    Args:
        nodes: (n,) where values are known.
        points: (p,) where they are wanted.

    Returns:
        A function of values (n, m) that returns them at the points, (p, m).
    """
    knots = make_interp_spline(nodes, np.zeros_like(nodes), k=_DEGREE).t
    design = BSpline.design_matrix(points, knots, _DEGREE)
    # banded: without reordering the factors are, too
    prefilter = splu(BSpline.design_matrix(nodes, knots, _DEGREE).tocsc(), permc_spec="NATURAL")

    def apply(values: np.ndarray) -> np.ndarray:  # (n, m) -> (p, m)
        """Evaluate the spline through values (n, m), column by column: (p, m)."""
        return design @ prefilter.solve(values)

    return apply


def variance_bound(variance: Tensor) -> Tensor:
    """What a cell's variance does not fall below, by the points around it.

    Beside a path the variance rises a hundredfold between two points, where its spline may swing
    below 0: a cell's standard deviation is no less than an eighth of the least within four points.

    Args:
        variance: of points (…, R, K).

    Returns:
        (…, R, K), of a cell that has the point below it and to its left.
    """
    return _SURER * _least(_least(variance).mT).mT


def _least(values: Tensor) -> Tensor:
    """Along the last axis (…, n) the least of eight values: three before each, to four after it."""
    values = torch.nn.functional.pad(values, (3, 4), value=torch.inf)
    for step in (1, 2, 4):
        values = torch.minimum(values[..., :-step], values[..., step:])
    return values


class CardSplines:
    """Splines along both axes as matrices on a device.

    Args:
        points: y of the rows (R,), x of the columns (K,), m.
        cells: y (H,), x (W,), m.
        device: where they are used.
    """

    def __init__(
        self,
        points: tuple[np.ndarray, np.ndarray],
        cells: tuple[np.ndarray, np.ndarray],
        device: torch.device,
    ):
        self._down, self._across = (
            torch.from_numpy(spline_operator(nodes, at)(np.eye(len(nodes)))).to(device)
            for nodes, at in zip(points, cells)
        )
        self._low, self._left = (
            torch.from_numpy(np.searchsorted(nodes, at, side="right") - 1).to(device)
            for nodes, at in zip(points, cells)
        )

    def __call__(self, values: Tensor) -> Tensor:
        """Values at the cells (…, H, W), of those at the points (…, R, K)."""
        return self._down @ values @ self._across.mT

    def bound(self, variance: Tensor) -> Tensor:
        """`variance_bound` of each cell (…, H, W), of variances at the points (…, R, K)."""
        return variance_bound(variance)[..., self._low, :][..., self._left]
