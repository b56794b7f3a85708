"""The whitened basis of a sparse map: a constant feature beside inducing inputs chosen by pivoted Cholesky.

    a(x) = [s_c ; s_h ĥ ; L⁻¹ k(z, x)],   L = chol k(z, z),   so that  k(x, x') + s_c² + s_h² ĥ·ĥ' ≈ a(x)ᵀ a(x')

The constant is a feature and not part of k: a large one would make k(z, z) nearly singular. So is the body-fixed
remainder, linear in the heading ĥ: without a heading its rows are 0, and the map is the field without the robot. A new
z borders L and appends a row to a(x), which leaves everything known in the old basis as it was.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.kernels.stationary import Kernel, Stationary, scaled_square_distance
from gp_mapping.core.linalg import cholesky, pivoted_cholesky, solve_lower

__all__ = ["Basis", "greedy_inputs", "whiten"]


def whiten(
    theta: Theta, z: Tensor, factor: Tensor, x: Tensor, heading: Tensor | None = None
) -> Tensor:
    """a(x): (features + M, N), in the precision of L. heading: ĥ (N, 2), None where the robot is to be left out."""
    features = theta.feature_rows(x, heading).to(factor.dtype)
    if not len(z):
        return features
    kernel = theta.kernel()
    if factor.dtype == x.dtype or not isinstance(kernel, Stationary):
        cross = kernel(z, x).to(factor.dtype)
    else:  # differences in float64: positions may be far apart
        lengthscale = torch.as_tensor(kernel.lengthscale, dtype=x.dtype, device=x.device)
        cross = kernel.variance * kernel.correlation(
            scaled_square_distance(z, x, lengthscale).to(factor.dtype)
        )
    return torch.cat([features, solve_lower(factor, cross)])


class Basis:
    """z (M, D) and L (M, M), lower, in standardised units; at most `capacity` of them.

    Both are replaced and never written into: who keeps one keeps what was. L is whole rows without gaps, which a
    triangular solve takes as it stands; of a part of something larger it would make a copy each time.
    """

    def __init__(self, theta: Theta, dimension: int, capacity: int, dtype, device):
        self.theta, self.kernel = theta, theta.kernel()
        self.capacity, self.dtype, self.device = capacity, dtype, device
        self.features = len(theta.feature_names())
        self.z = torch.empty((0, dimension), dtype=torch.float64, device=device)
        self.L = torch.zeros((0, 0), dtype=dtype, device=device)

    @classmethod
    def at(cls, z: Tensor, like: "Basis") -> "Basis":
        """A fresh basis on given inducing inputs, with another basis' settings."""
        new = cls(like.theta, z.shape[1], max(like.capacity, len(z)), like.dtype, like.device)
        factor, _ = cholesky(new.kernel(z, z))
        new.z, new.L = z.clone(), _by_rows(factor, new.dtype)
        return new

    @classmethod
    def restored(cls, z: Tensor, factor: Tensor, like: Basis) -> Basis:
        """Inducing inputs and their factor from a file, with another basis' settings."""
        new = cls(like.theta, z.shape[1], like.capacity, like.dtype, like.device)
        new.z, new.L = z, _by_rows(factor, new.dtype)
        return new

    def __len__(self) -> int:
        return self.z.shape[0]

    @property
    def size(self) -> int:
        """Rows of a(x): features + M."""
        return self.features + self.z.shape[0]

    def whitened(self, x: Tensor, heading: Tensor | None = None) -> Tensor:
        """a(x): (features + M, N) in float64."""
        return whiten(self.theta, self.z, self.L, x, heading).double()

    def residual(self, x: Tensor, whitened: Tensor) -> Tensor:
        """k(x, x) − q(x, x), the prior variance that the inducing inputs do not reach: (N,), at least 0."""
        return (self.kernel.diag(x) - whitened[self.features :].square().sum(0)).clamp_min(0.0)

    def grow(
        self,
        x: Tensor,
        whitened: Tensor,
        among: slice,
        tolerance: float,
        room: int | None = None,
        precision: Tensor | None = None,
        worth: float = 0.0,
        others: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Append, greedily, those of x[among] whose residual exceeds the tolerance and that are worth an input.

        Args:
            x: (N, D) places: candidates, and samples that the sites hold.
            white: a(x), (features + M, N).
            among: the candidates.
            tolerance: least residual variance k − q, absolute.
            room: most inputs to add.
            precision: β of all x (N,), of those beside after them; the next input is the candidate of largest w
                (worth.py). Without it the one of largest residual.
            worth: least w of an input.
            beside: places and a(x) of more samples that the sites hold, none of them a candidate; not copied.

        Returns:
            The new rows of a(x) for all x, (added, N), and for those beside after them.
        """
        room = self.capacity - len(self) if room is None else min(room, self.capacity - len(self))
        residual = self.residual(x[among], whitened[:, among])
        wanting = torch.arange(len(x), device=x.device)[among][residual > tolerance]
        blocks = [(x, whitened)] if others is None else [(x, whitened), others]
        if room <= 0 or not len(wanting):
            return whitened.new_empty((0, sum(len(places) for places, _ in blocks)))
        inducing = whitened[self.features :]
        chosen = inducing[:, wanting]

        def left(of: Tensor, its: Tensor) -> Tensor:
            """Residual covariance of candidates `of`, with features `its`, with all samples."""
            each = [
                self.kernel(of, places) - its.mT @ told[self.features :] for places, told in blocks
            ]
            return each[0] if others is None else torch.cat(each, 1)

        if precision is None:
            covariance = self.kernel(x[wanting], x[wanting]) - chosen.mT @ chosen
            pivots, rows = pivoted_cholesky(
                len(wanting), covariance.diagonal(), covariance.__getitem__, tolerance, room
            )
            picked = wanting[pivots]
            if pivots:
                rows = solve_lower(
                    rows[:, pivots].mT.contiguous(), left(x[picked], inducing[:, picked])
                )
        else:
            picked, rows = _most_worth(
                left(x[wanting], chosen), wanting, tolerance, room, precision, worth
            )
        if not len(picked):
            return whitened.new_empty((0, sum(len(places) for places, _ in blocks)))

        m, k = len(self), len(picked)
        wider = self.L.new_zeros((m + k, m + k))
        wider[:m, :m] = self.L
        wider[m:, :m] = inducing[:, picked].mT
        wider[m:, m:] = rows[:, picked].mT.tril()
        self.z, self.L = torch.cat([self.z, x[picked]]), wider
        return rows

    def copy(self, capacity: int | None = None) -> "Basis":
        """The same basis, which grows by itself."""
        new = Basis(self.theta, self.z.shape[1], capacity or self.capacity, self.dtype, self.device)
        new.z, new.L = self.z, self.L
        return new

    def transfer_from(self, z: Tensor, factor: Tensor, theta: Theta) -> Tensor:
        """T (F + M', F + M) that carries sites from inducing inputs z with L = factor at theta into this basis.

        T = L'⁻¹ k(z', z) L⁻ᵀ. With k at new hyper-parameters and L at the old ones this holds the pseudo-data
        K⁻¹GK⁻¹ and K⁻¹h fixed; with both the same it is the projection P = k(z', z)K⁻¹. A feature scales by s'/s.
        """
        cross = (
            solve_lower(self.L, self.kernel(self.z, z).to(self.dtype))
            if len(self)
            else z.new_empty((0, len(z)))
        )
        inducing = solve_lower(factor, cross.mT.to(factor.dtype)).mT.double()
        mine, its = self.theta.feature_names(), theta.feature_names()
        # a feature that only one of the two has: the other one's pseudo-data say nothing of it
        features = torch.tensor(
            [
                [getattr(self.theta, m[0]) / getattr(theta, m[0]) if m == i else 0.0 for i in its]
                for m in mine
            ],
            dtype=torch.float64,
            device=self.device,
        ).reshape(len(mine), len(its))
        moved = torch.zeros(
            (len(mine) + len(inducing), len(its) + inducing.shape[1]),
            dtype=torch.float64,
            device=self.device,
        )
        moved[: len(mine), : len(its)] = features
        moved[len(mine) :, len(its) :] = inducing
        return moved


def _by_rows(factor: Tensor, dtype) -> Tensor:
    """A copy of L (M, M), laid out in rows."""
    return factor.to(dtype).clone(memory_format=torch.contiguous_format)


def _most_worth(
    covariance: Tensor,
    wanting: Tensor,
    tolerance: float,
    room: int,
    precision: Tensor,
    worth: float,
) -> tuple[Tensor, Tensor]:
    """Candidates, each of the largest w given those before it, and their rows of a(x).

    covariance: residual covariance (n, N) of the candidates with all x, written over.  wanting (n,): where they stand
    among x.  precision: β (N,).  Returns indices among x (r,) and rows (r, N).
    """
    picked, rows = [], []
    while len(picked) < room:
        own = covariance.gather(1, wanting[:, None])[:, 0]
        told = covariance.square() @ precision / own.clamp_min(tolerance)
        told.masked_fill_(own <= tolerance, 0.0)
        p = int(told.argmax())
        if not float(told[p]) > worth:
            break
        row = covariance[p] / own[p].sqrt()
        picked.append(int(wanting[p]))
        rows.append(row)
        if len(wanting) == 1:
            break
        covariance.addr_(row[wanting], row, alpha=-1.0)
    if not picked:
        return wanting[:0], covariance[:0]
    return torch.tensor(picked, device=wanting.device), torch.stack(rows)


def greedy_inputs(kernel: Kernel, x: Tensor, tolerance: float, rank: int) -> list[int]:
    """Indices of x (N, D), greedily, until no residual prior variance exceeds the tolerance or rank is reached."""

    def row(p: int) -> Tensor:
        return kernel(x[p : p + 1], x)[0]

    return pivoted_cholesky(len(x), kernel.diag(x), row, tolerance, rank)[0]
