"""What is left to gain at each place while a path grows, without beginning anew at each leg.

Measuring at X changes C and S by matrices of the rank of X: with u = L⁻¹ C_XP, v = L⁻¹ S_XP,
L Lᵀ = C_XX + N and z = v − ½ (L⁻¹ S_XX L⁻ᵀ) u,

    C ← C − uᵀu,     S ← S − uᵀz − zᵀu.

The rows u and z of all that was measured are kept, and of C and S their diagonals; rows of both
matrices are computed where the next leg measures.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.linalg import cholesky
from gp_mapping.planning.worth.path_value import PathValue, Visits, columns_at, rows_at

__all__ = ["GrowingPath"]


class GrowingPath:
    """A path that grows, and the gain of one more measurement after it.

    Args:
        value: before the path.
    """

    def __init__(self, value: PathValue):
        self._value = value
        self._C, self._S = value.C.diagonal().clone(), value.S.diagonal().clone()
        self._u = self._z = value.C.new_empty((0, len(value)))

    @property
    def remaining_gains(self) -> Tensor:
        """Gain (P,) of one more measurement at each place, as PathValue.remaining_gains."""
        return self._S / (self._C + self._value.noise)

    @torch.no_grad()
    def add(self, visits: Visits) -> None:
        """Measure there next."""
        if not len(visits):
            return

        value, u, z = self._value, self._u, self._z
        index, weight = visits.places, visits.weights

        cross, worth = (rows_at(matrix, index, weight) for matrix in (value.C, value.S))
        if len(u):
            u_X, z_X = (columns_at(rows, index, weight) for rows in (u, z))
            cross -= u_X.mT @ u
            worth -= u_X.mT @ z + z_X.mT @ u

        L = cholesky(columns_at(cross, index, weight) + torch.diag(value.noise_of(visits)))[0]
        inner = torch.linalg.solve_triangular(L, columns_at(worth, index, weight), upper=False)
        inner = torch.linalg.solve_triangular(L.mT, inner, upper=True, left=False)

        new_u, new_z = torch.linalg.solve_triangular(
            L, torch.cat([cross, worth], 1), upper=False
        ).split(len(value), 1)
        new_z = new_z - 0.5 * inner @ new_u

        self._C -= new_u.square().sum(0)
        self._S -= 2.0 * (new_u * new_z).sum(0)
        self._u, self._z = torch.cat([u, new_u]), torch.cat([z, new_z])
