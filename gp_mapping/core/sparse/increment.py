"""Changes of mean and variance between two posteriors, for less work than a prediction.

The precision of the features grew from D₀, bordered with the identity for new inducing inputs, to
D₁ = R₁R₁ᵀ. A few samples change it by a matrix of small rank, Δ = D₁ − D₀ = V S Vᵀ, V (R, r)
orthonormal, S diagonal. With Woodbury's identity and p(x) = Vᵀ D₁⁻¹ a(x),

    variance₁(x) − variance₀(x) = a(x)ᵀ (D₁⁻¹ − D₀⁻¹) a(x) = −p(x)ᵀ (S⁻¹ − Vᵀ D₁⁻¹ V)⁻¹ p(x)
    mean₁(x) − mean₀(x) = a(x)ᵀ (w₁ − w₀)

With a(x) = L⁻¹k(z, x), p(x) = (L⁻ᵀ D₁⁻¹ V)ᵀ k(z, x): a place costs M kernel values and M r
products, where a prediction takes M² for two triangular solves. V is found by a randomised range
finder (Halko, Martinsson and Tropp 2011, algorithm 4.1), which also estimates how much of Δ it has
missed.

Where inducing inputs went, both precisions are those of all features that were there before or are
now. With Q, orthonormal rows, from these to the ones that stayed, what is left of a map says of all
features D̃₁ = I + Qᵀ(D₁ − I)Q and w̃₁ = Qᵀw₁, so that k inputs that went are a Δ of rank 2k at most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.kernels.stationary import Stationary
from gp_mapping.core.linalg import chunk_size, solve_lower
from gp_mapping.core.scaling import Scaling
from gp_mapping.core.snapshot import Increments

if TYPE_CHECKING:
    from gp_mapping.core.sparse.posterior import Posterior

__all__ = ["Increment", "increment_between"]

# Ranks r to try. A map that has changed in more directions is predicted anew at no more cost.
_RANKS = (8, 48)
_PROBES = 4  # additional directions, which show what was missed
# What may be missed, relative to the prior variance: D ≥ I, so a part of Δ that is missed is an
# error of at most as much.
_MISSED = 1e-9
_APART = 1e-8  # error of orthonormal rows above which two bases are not of one kernel matrix
_FEW = 96  # rows of a(x) up to which a prediction is as fast


@dataclass(frozen=True, eq=False)
class Increment(Increments):
    """Mean and variance of a later moment minus those of an earlier one.

    Attributes:
        theta: hyper-parameters, inner units.
        z: inducing inputs of the later moment, and those that went (M, D), standardised.
        scaling: from SI to standardised values and back.
        rows: [D₁⁻¹V, W], W = w₁ − w₀, (R, r + C); rows of inducing inputs are multiplied by L⁻ᵀ, so
            that they apply to [features; k(z, x)].
        middle: (S⁻¹ − VᵀD₁⁻¹V)⁻¹, (r, r).
    """

    theta: Theta
    z: Tensor
    scaling: Scaling
    rows: Tensor
    middle: Tensor

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As Increments.__call__; known everywhere."""
        channels, scale = self.rows.shape[1] - len(self.middle), self.scaling.scale
        means, variances = [self.rows.new_empty((0, channels))], [self.rows.new_empty(0)]
        for part in self.scaling.inner_x(x).split(chunk_size(self.z.device, len(self.rows))):
            mean, variance = self.predict_inner(part)
            means.append(mean)
            variances.append(variance)

        variance = (torch.cat(variances) * scale**2)[:, None].expand(-1, channels)
        known = torch.ones(len(x), dtype=torch.bool, device=self.z.device)
        return torch.cat(means) * scale, variance, known

    @cached_property
    def _of_features(self) -> Tensor | None:
        """What the features add to the products, (1, r + C); None where there are none."""
        features = len(self.rows) - len(self.z)
        if not features:
            return None
        # without a heading the features are the same everywhere
        return self.theta.feature_rows(self.z[:1], None).mT @ self.rows[:features]

    @cached_property
    def _of_inputs(self) -> Callable[[Tensor], Tensor]:
        """A function of x (N, D), standardised: what the inducing inputs add to the products."""
        kernel, rows = self.theta.kernel(), self.rows[len(self.rows) - len(self.z) :]
        if not isinstance(kernel, Stationary):
            return lambda x: kernel(x, self.z) @ rows
        correlations, scaled = kernel.correlations_with(self.z), kernel.variance * rows
        return lambda x: correlations(x) @ scaled

    def predict_inner(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Changes of the mean (N, C) and of the variance (N,) at standardised x (N, D)."""
        rank = len(self.middle)
        products = self._of_inputs(x)
        if self._of_features is not None:
            products += self._of_features

        p = products[:, :rank]
        return products[:, rank:], -((p @ self.middle) * p).sum(1)


@lru_cache(maxsize=4)
def _probes(size: int, count: int, device: torch.device) -> Tensor:
    """Random columns (size, count), the same at each call."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn((size, count), dtype=torch.float64, generator=generator).to(device)


def increment_between(before: Posterior, now: Posterior) -> Increment | None:
    """The change from one posterior of a map to a later one.

    Args:
        before: the earlier posterior.
        now: the later one.

    Returns:
        None where the basis or the hyper-parameters have changed otherwise than by inducing inputs
        that came or went, or where predicting anew is not more expensive.
    """
    if before.theta != now.theta or len(now.R) <= _FEW or now.L.dtype != torch.float64:
        return None

    must_agree = (
        (before.scaling.origin, now.scaling.origin),
        (before.scaling.centre, now.scaling.centre),
    )
    if before.scaling.scale != now.scaling.scale or not all(map(_are_equal, *zip(*must_agree))):
        return None

    basis = _joint_basis(before, now)
    if basis is None:
        return None
    old, size = len(before.R), len(before.R) + basis.grown  # rows of D₀ before it is bordered

    def padded(columns: Tensor) -> Tensor:
        """Columns (old, n) with rows of zeros for the new inducing inputs."""
        return torch.cat([columns, columns.new_zeros((basis.grown, columns.shape[1]))])

    def product(right: Tensor) -> Tensor:
        """Δ = D₁ − D₀ times columns (R, n)."""
        first = basis.times_later(now.R, right)
        first[:old] -= before.R @ (before.R.mT @ right[:old])
        first[old:] -= right[old:]
        return first

    # range of Δ: the first `rank` products span it, the further probes check that
    largest = float(torch.linalg.vector_norm(now.R, dim=1).max()) ** 2  # of D₁: its diagonal
    rounding = 64.0 * torch.finfo(torch.float64).eps * largest
    for rank in _RANKS:
        images = product(_probes(size, rank + _PROBES, now.R.device))
        base = torch.linalg.qr(images[:, :rank]).Q
        missed = images[:, rank:] - base @ (base.mT @ images[:, rank:])
        if float(missed.norm()) <= max(_MISSED, rounding):
            break
    else:
        return None

    # eigenvectors V and eigenvalues S of Δ in that range, without those that are but rounding
    parts = before.R.mT @ base[:old], base[old:]  # of baseᵀ D₀ base
    less = [part.mT @ part for part in parts]
    values, vectors = torch.linalg.eigh(basis.square_of_later(now.R, base) - less[0] - less[1])
    significant = values.abs() > max(_MISSED * 1e-3, rounding)
    values, span = values[significant], base @ vectors[:, significant]

    solved = basis.solve_later(now.R, span)  # D₁⁻¹V
    middle = torch.linalg.inv(torch.diag(1.0 / values) - span.mT @ solved)
    rows = torch.cat([solved, basis.back(now.weights) - padded(before.weights)], 1)

    # L⁻ᵀ once, here, instead of L⁻¹k(z, x) for each place
    features = size - len(basis.z)
    rows = torch.cat([rows[:features], solve_lower(basis.L, rows[features:], transpose=True)])
    return Increment(now.theta, basis.z, now.scaling, rows, 0.5 * (middle + middle.mT))


def _are_equal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same."""
    return one is other or torch.equal(one, other)


@dataclass(frozen=True)
class _JointBasis:
    """The inducing inputs of two moments, those of the earlier one first.

    Attributes:
        z: (M, D), standardised.
        L: Cholesky factor of their kernel matrix (M, M).
        grown: inputs that the later moment alone has.
        left: Q (M₁, M), orthonormal rows, from features on them to those of the later moment's
            inputs; None: they are the same.
    """

    z: Tensor
    L: Tensor
    grown: int
    left: Tensor | None = None

    def _onto(self, columns: Tensor) -> Tensor:
        """Q times columns (R, n), whose first rows are of other features: (R₁, n)."""
        features = len(columns) - len(self.z)
        return torch.cat([columns[:features], self.left @ columns[features:]])

    def back(self, columns: Tensor) -> Tensor:
        """Qᵀ times columns (R₁, n): (R, n)."""
        if self.left is None:
            return columns
        features = len(columns) - len(self.left)
        return torch.cat([columns[:features], self.left.mT @ columns[features:]])

    def times_later(self, factor: Tensor, right: Tensor) -> Tensor:
        """D̃₁ times columns (R, n).

        Args:
            factor: R₁ of D₁ = R₁R₁ᵀ.
            right: the columns.
        """
        if self.left is None:
            return factor @ (factor.mT @ right)
        part = self._onto(right)
        return right + self.back(factor @ (factor.mT @ part) - part)

    def square_of_later(self, factor: Tensor, right: Tensor) -> Tensor:
        """Bᵀ D̃₁ B (n, n) of columns B.

        Args:
            factor: as of `times_later`.
            right: the columns B.
        """
        if self.left is not None:
            return right.mT @ self.times_later(factor, right)
        part = factor.mT @ right
        return part.mT @ part

    def solve_later(self, factor: Tensor, right: Tensor) -> Tensor:
        """D̃₁⁻¹ times columns.

        Args:
            factor: as of `times_later`.
            right: the columns.
        """
        part = right if self.left is None else self._onto(right)
        solved = solve_lower(factor, solve_lower(factor, part), transpose=True)
        return solved if self.left is None else right + self.back(solved - part)


def _joint_basis(before: Posterior, now: Posterior) -> _JointBasis | None:
    """The inputs of two moments; None where more has changed than that some came or went.

    Args:
        before: the earlier posterior.
        now: the later one, with the same kernel and scaling.
    """
    m, grown = len(before.z), len(now.z) - len(before.z)
    if grown >= 0 and _are_equal(before.z, now.z[:m] if grown else now.z):
        same = _are_equal(before.L, now.L[:m, :m] if grown else now.L)
        return _JointBasis(now.z, now.L, grown) if same else None

    # those that stayed, in their order, and new ones after them
    pairs = (before.z[:, None] == now.z).all(-1).nonzero()
    stayed, kept = pairs[:, 0], len(pairs)
    if not torch.equal(pairs[:, 1], torch.arange(kept, device=stayed.device)):
        return None
    grown = len(now.z) - kept

    # the factor bordered by the new ones, whose kernel matrix is that of the later moment
    z, new = torch.cat([before.z, now.z[kept:]]), now.L[kept:]
    beside = solve_lower(before.L, now.theta.kernel()(before.z, now.z[kept:])).mT
    corner, failed = torch.linalg.cholesky_ex(new @ new.mT - beside @ beside.mT)
    if int(failed):
        return None
    upper = torch.cat([before.L, before.L.new_zeros((m, grown))], 1)
    joint = torch.cat([upper, torch.cat([beside, corner], 1)])

    rows = torch.cat([stayed, torch.arange(m, m + grown, device=stayed.device)])
    left = solve_lower(now.L, joint[rows])
    # both factors are of the same kernel matrix, or the features are not each other's
    apart = left @ left.mT - torch.eye(len(left), dtype=left.dtype, device=left.device)
    return _JointBasis(z, joint, grown, left) if float(apart.abs().max()) < _APART else None
