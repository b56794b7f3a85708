"""The whitened basis of a sparse map: explicit features, and inducing inputs chosen greedily.

    a(x) = [s_c ; s_h ĥ ; L⁻¹ k(z, x)],   L = chol k(z, z)
    k(x, x') + s_c² + s_h² ĥ·ĥ' ≈ a(x)ᵀ a(x')

The constant is a feature and not part of k: a large one would make k(z, z) nearly singular. The
body-fixed field, linear in the heading ĥ, is a feature as well: without a heading its rows are 0,
and the map is the field without the robot.

Inducing inputs are chosen by pivoted Cholesky. A new z borders L and appends a row to a(x), which
leaves everything that is known in the old basis as it was.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import as_dtype
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.kernels.stationary import Kernel, Stationary, prior_variance
from gp_mapping.core.linalg import InverseFactor, cholesky, solve_lower
from gp_mapping.core.sparse import greedy

__all__ = ["Basis", "greedy_inputs", "whiten"]


def whiten(
    theta: Theta,
    z: Tensor,
    factor: Tensor,
    x: Tensor,
    heading: Tensor | None = None,
    inverse: InverseFactor | None = None,
) -> Tensor:
    """Whitened features a(x).

    Args:
        theta: hyper-parameters.
        z: inducing inputs (M, D), standardised.
        factor: L = chol k(z, z), (M, M).
        x: (N, D), standardised.
        heading: ĥ (N, 2); None leaves the body-fixed field out.
        inverse: of L, where it is known.

    Returns:
        (features + M, N), in the precision of L.
    """
    features = as_dtype(theta.feature_rows(x, heading), factor.dtype)
    if not z.shape[0]:
        return features

    # Column-major, as LAPACK takes and leaves it: else each solve turns what it is given.
    kernel = theta.kernel()
    if factor.dtype == x.dtype or not isinstance(kernel, Stationary):
        cross = as_dtype(kernel(x, z), factor.dtype)
    else:  # positions may be far apart
        cross = kernel.single(x, z)

    if inverse is not None:
        whitened = cross.new_empty((len(features) + len(z), len(x)))
        whitened[: len(features)] = features
        inverse.solve(cross.mT, whitened[len(features) :])
        return whitened
    return torch.cat([features.mT, solve_lower(factor, cross.mT).mT], 1).mT


class Basis:
    """Inducing inputs z and the Cholesky factor L of k(z, z), with room for `capacity` inputs.

    z and L are replaced and never written into, so a reference to one stays valid. L is contiguous,
    row by row: a triangular solve takes it as it stands, where it would copy a part of a larger
    buffer each time.

    Args:
        theta: hyper-parameters.
        dimension: D, of places.
        capacity: inducing inputs that there is room for.
        dtype: of L.
        device: of all tensors.

    Attributes:
        z: (M, D), standardised.
        L: (M, M), lower.
        features: number F of rows of a(x) before those of the inducing inputs.
    """

    def __init__(self, theta: Theta, dimension: int, capacity: int, dtype, device):
        self.theta, self.kernel = theta, theta.kernel()
        self.capacity, self.dtype, self.device = capacity, dtype, device
        self.features = len(theta.feature_names())
        self.z = torch.empty((0, dimension), dtype=torch.float64, device=device)
        self.L = torch.zeros((0, 0), dtype=dtype, device=device)

    @classmethod
    def at(cls, z: Tensor, like: "Basis") -> "Basis":
        """A new basis on given inducing inputs.

        Args:
            z: inducing inputs (M, D).
            like: the basis whose θ, capacity, dtype and device it gets; M where that is more.
        """
        new = cls(like.theta, z.shape[1], max(like.capacity, len(z)), like.dtype, like.device)
        factor, _ = cholesky(new.kernel(z, z))
        new.z, new.L = z.clone(), _by_rows(factor, new.dtype)
        return new

    @classmethod
    def restored(cls, z: Tensor, factor: Tensor, like: Basis) -> Basis:
        """A basis from a file.

        Args:
            z: inducing inputs (M, D).
            factor: L (M, M).
            like: the basis whose θ, capacity, dtype and device it gets.
        """
        new = cls(like.theta, z.shape[1], like.capacity, like.dtype, like.device)
        new.z, new.L = z, _by_rows(factor, new.dtype)
        return new

    def __len__(self) -> int:
        return self.z.shape[0]

    @property
    def size(self) -> int:
        """Number of rows of a(x): features + M."""
        return self.features + self.z.shape[0]

    def whitened(self, x: Tensor, heading: Tensor | None = None) -> Tensor:
        """Whitened features a(x), (features + M, N), in float64.

        Args:
            x: places (N, D).
            heading: ĥ (N, 2); None: their features are 0.
        """
        return whiten(self.theta, self.z, self.L, x, heading).double()

    def residual(self, x: Tensor, whitened: Tensor) -> Tensor:
        """Residual variance k(x, x) − q(x, x), which the inputs do not represent; (N,), ≥ 0.

        Args:
            x: places (N, D).
            whitened: a(x), (features + M, N).
        """
        explained = whitened[self.features :].square().sum(0)
        return (prior_variance(self.kernel, x) - explained).clamp_min(0.0)

    def candidates(self, x: Tensor, whitened: Tensor, among: slice, tolerance: float) -> Tensor:
        """Indices, among x, of the places whose residual variance exceeds a tolerance: (n,).

        Args:
            x: places (N, D).
            whitened: a(x), (features + M, N).
            among: which of x are looked at.
            tolerance: absolute.
        """
        residual = self.residual(x[among], whitened[:, among])
        return torch.arange(len(x), device=x.device)[among][residual > tolerance]

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
        candidates: Tensor | None = None,
    ) -> Tensor:
        """Greedily append candidates as inducing inputs.

        A candidate qualifies when its residual variance exceeds the tolerance and it is worth an
        input.

        Args:
            x: (N, D) places: candidates, and samples that are in the sites.
            whitened: a(x), (features + M, N).
            among: which of x are candidates.
            tolerance: least residual variance k − q, absolute.
            room: most inputs to add.
            precision: β of all x, and after them of `others`, (N + K,). With it the next input is
                the candidate of largest worth w (worth.py), without it the one of largest residual.
            worth: least w of an input.
            others: places (K, D) and a(·) (features + M, K) of more samples that are in the sites,
                none of them a candidate; they are not copied.
            candidates: those whose residual variance exceeds the tolerance, as of `candidates`,
                where the caller has them.

        Returns:
            The new rows of a(x), (added, N), or (added, N + K) with `others`.
        """
        room = self.capacity - len(self) if room is None else min(room, self.capacity - len(self))
        if candidates is None:
            candidates = self.candidates(x, whitened, among, tolerance)
        blocks = [(x, whitened)] if others is None else [(x, whitened), others]
        if room <= 0 or not candidates.shape[0]:
            return whitened.new_empty((0, sum(len(places) for places, _ in blocks)))

        inducing = whitened[self.features :]
        alone = x.shape[0] == 1  # as samples mostly come: it is the candidate
        candidate_places = x if alone else x[candidates]
        candidate_rows = inducing if alone else inducing[:, candidates]
        places = x if others is None else torch.cat([x, others[0]])

        def residual_covariance(of: Tensor, of_rows: Tensor) -> Tensor:
            """k − q of candidates `of`, whose rows of L⁻¹k are `of_rows`, with all samples."""
            parts = [of_rows.mT @ features[self.features :] for _, features in blocks]
            return self.kernel(of, places) - (parts[0] if others is None else torch.cat(parts, 1))

        if precision is None:
            # pivots among the candidates alone; then their rows for all samples in one solve
            covariance = (
                self.kernel(candidate_places, candidate_places) - candidate_rows.mT @ candidate_rows
            )
            pivots, rows = greedy.select_pivots(
                covariance.diagonal(), lambda p: covariance[p][0], tolerance, room
            )
            picked = candidates[pivots]
            if len(pivots):
                rows = solve_lower(
                    rows[:, pivots].mT.contiguous(),
                    residual_covariance(x[picked], inducing[:, picked]),
                )
        else:
            picked, rows = greedy.select_inputs(
                residual_covariance(candidate_places, candidate_rows),
                candidates,
                tolerance,
                room,
                precision,
                worth,
            )
        if not picked.shape[0]:
            return whitened.new_empty((0, sum(len(places) for places, _ in blocks)))

        # border L: [L 0; a(z')ᵀ chol(residual of z')]
        m, k = len(self), picked.shape[0]
        bordered = self.L.new_empty((m + k, m + k))
        bordered[:m, :m] = self.L
        bordered[:m, m:] = 0.0
        bordered[m:, :m] = (inducing if alone else inducing[:, picked]).mT
        if alone:
            bordered[m:, m:] = rows[:, :1]
        else:
            bordered[m:, m:] = rows[:, picked].mT.tril()
        self.z, self.L = torch.cat([self.z, x if alone else x[picked]]), bordered
        return rows

    def copy(self, capacity: int | None = None) -> "Basis":
        """An independent copy that shares the tensors until one of the two grows."""
        new = Basis(self.theta, self.z.shape[1], capacity or self.capacity, self.dtype, self.device)
        new.z, new.L = self.z, self.L
        return new

    def transfer_from(self, z: Tensor, factor: Tensor, theta: Theta) -> Tensor:
        """The matrix T that transfers sites from another basis into this one (Sites.project).

            T = L'⁻¹ k(z', z) L⁻ᵀ

        With k at new hyper-parameters and L at the old ones this keeps the pseudo-data K⁻¹GK⁻¹ and
        K⁻¹h; with both the same it is the projection P = k(z', z)K⁻¹. A feature scales by s'/s.

        Args:
            z: inducing inputs of the other basis, (M, D).
            factor: its L, (M, M).
            theta: its hyper-parameters.

        Returns:
            T, (F' + M', F + M), primes for this basis.
        """
        cross = (
            solve_lower(self.L, self.kernel(self.z, z).to(self.dtype))
            if len(self)
            else z.new_empty((0, len(z)))
        )
        inducing = solve_lower(factor, cross.mT.to(factor.dtype)).mT.double()

        new_names, old_names = self.theta.feature_names(), theta.feature_names()
        # 0 for a feature that only one of the two has: the other's pseudo-data do not inform it
        features = torch.tensor(
            [
                [
                    getattr(self.theta, new[0]) / getattr(theta, new[0]) if new == old else 0.0
                    for old in old_names
                ]
                for new in new_names
            ],
            dtype=torch.float64,
            device=self.device,
        ).reshape(len(new_names), len(old_names))

        transfer = torch.zeros(
            (len(new_names) + len(inducing), len(old_names) + inducing.shape[1]),
            dtype=torch.float64,
            device=self.device,
        )
        transfer[: len(new_names), : len(old_names)] = features
        transfer[len(new_names) :, len(old_names) :] = inducing
        return transfer


def _by_rows(factor: Tensor, dtype) -> Tensor:
    """A contiguous copy of L (M, M), row by row."""
    return factor.to(dtype).clone(memory_format=torch.contiguous_format)


def greedy_inputs(kernel: Kernel, x: Tensor, tolerance: float, rank: int) -> list[int]:
    """Greedy choice of inducing inputs among x, by largest residual prior variance.

    Args:
        kernel: k.
        x: (N, D).
        tolerance: residual prior variance below which no more are chosen.
        rank: most inputs.

    Returns:
        Indices of x, in the order of choice.
    """

    def row(p: Tensor | slice) -> Tensor:
        """A row of the kernel matrix, (N,)."""
        return kernel(x[p], x)[0]

    return greedy.select_pivots(kernel.diag(x), row, tolerance, rank)[0].tolist()
