"""Cubic splines from the points of a lattice to the cells of a grid.

A tensor-product spline S(y, x) = Σ_ij A_i(y) f_ij B_j(x): along one axis, then along the other. On
a processor an axis is a banded prefilter and a sparse evaluation; on a card, where products are
quick and small steps are not, it is one matrix.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.interpolate import BSpline, make_interp_spline
from scipy.sparse.linalg import splu
from torch import Tensor

__all__ = ["CardSplines", "spline_operator", "variance_bound"]

_SURER = 0.5  # of the least variance around a cell: a resolved valley between points is flatter


def spline_operator(nodes: np.ndarray, points: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Cubic spline interpolation between two sets of places along an axis.

    It is a prefilter, which is factored here, and a sparse evaluation.

    Args:
        nodes: (n,) where values are known.
        points: (p,) where they are wanted.

    Returns:
        A function of values (n, m) that returns them at the points, (p, m).
    """
    knots = make_interp_spline(nodes, np.zeros_like(nodes), k=3).t
    design = BSpline.design_matrix(points, knots, 3)
    # banded: without reordering the factors are, too
    prefilter = splu(BSpline.design_matrix(nodes, knots, 3).tocsc(), permc_spec="NATURAL")

    def apply(values: np.ndarray) -> np.ndarray:  # (n, m) -> (p, m)
        """Evaluate the spline through values (n, m), column by column: (p, m)."""
        return design @ prefilter.solve(values)

    return apply


def variance_bound(variance: Tensor) -> Tensor:
    """What a cell's variance does not fall below, by the points around it.

    Beside a path the variance rises a hundredfold between two points, where its spline swings below
    0: a cell is not far surer than the surest of the four points around it.

    Args:
        variance: of points (…, R, K).

    Returns:
        (…, R, K), of a cell that has the point below it and to its left.
    """
    rows = torch.minimum(variance, torch.cat([variance[..., 1:, :], variance[..., -1:, :]], -2))
    least = torch.minimum(rows, torch.cat([rows[..., 1:], rows[..., -1:]], -1))
    return _SURER * least


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
