"""WISKI as published (Stanton et al. 2021), dense: caches Wᵀy, yᵀy and a root of WᵀW.

    K̃ = W K_uu Wᵀ,  noise σ² V:  c = WᵀV⁻¹y,  A = WᵀV⁻¹W = L Lᵀ,  Q = I + σ⁻² LᵀK_uu L
    P = (K_uu⁻¹ + σ⁻²A)⁻¹ = K_uu − σ⁻² K_uu L Q⁻¹ Lᵀ K_uu
    mean = σ⁻² wᵀP c
    var = wᵀP w  (+ k − wᵀK_uu w, the residual that structured interpolation drops)
    log p(y) = −½σ⁻²(yᵀV⁻¹y − σ⁻² cᵀP c) − ½(log|Q| + n log σ² + Σ log v) − ½ n log 2π

The last is eq. 13, corrected. The module has the evidence and its gradients. It is the reference
for the matrix-free form, and serves inputs of more than two dimensions, by a learned projection.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor

from gp_mapping.core.kernels.stationary import make_kernel
from gp_mapping.core.models.wiski.lattice.interpolation import interpolation_matrix
from gp_mapping.core.models.wiski.lattice.root import RootCache

__all__ = ["DenseWiski", "Projection"]


class Projection:
    """h(x) = tanh((x − x̄)/s · Φ): inputs of any dimension D to (−1, 1)^d.

    Args:
        weights: Φ (D, d), the start; it is learned.
        mean: x̄ (D,); 0 if None.
        scale: s (D,); 1 if None.
    """

    def __init__(self, weights: Tensor, mean: Tensor | None = None, scale: Tensor | None = None):
        self.weights = weights.detach().clone().double().requires_grad_(True)
        self.mean = torch.zeros(len(weights)).double() if mean is None else mean.double()
        self.scale = torch.ones(len(weights)).double() if scale is None else scale.double()

    def __call__(self, x: Tensor) -> Tensor:
        """h(x) (N, d) of x (N, D)."""
        return torch.tanh(((x - self.mean) / self.scale) @ self.weights)


class DenseWiski:
    """Online GP on a fixed grid of m nodes: O(m r) a sample, O(m r²) for the evidence.

    Args:
        low: (d,) of the region that interpolation covers.
        high: (d,) of that region.
        shape: nodes along each axis.
        kernel: name of the covariance function.
        lengthscale: the start.
        signal: the start, a standard deviation.
        noise: the start, a standard deviation.
        fixed_noise: every sample brings its variance v, and σ² = 1 is not learned.
        rank: of the root to begin with; m if None. Where it does not suffice, the root is made anew
            with twice the rank from A itself, which is kept in addition: with a root that lacks
            what c has, the evidence is meaningless.
        projection: h, learned online; None for inputs of the grid's own dimension.
        residual: whether k − wᵀK_uu w is added to the variance.
        rate: learning rate of the hyper-parameters.
        projection_rate: learning rate of the projection.
    """

    def __init__(
        self,
        low,
        high,
        shape: tuple[int, ...],
        *,
        kernel: str = "matern52",
        lengthscale: float = 0.5,
        signal: float = 1.0,
        noise: float = 0.1,
        fixed_noise: bool = False,
        rank: int | None = None,
        projection: Projection | None = None,
        residual: bool = False,
        rate: float = 0.05,
        projection_rate: float = 0.01,
    ):
        self.low = torch.as_tensor(low, dtype=torch.float64)
        # two spacings beyond the region on either side: every place inside has four nodes per axis
        self.step = (torch.as_tensor(high, dtype=torch.float64) - self.low) / (
            torch.tensor(shape) - 5
        )

        self.shape, self.kernel_name, self.fixed_noise = tuple(shape), kernel, fixed_noise
        axes = [self.low[d] + (torch.arange(n) - 2.0) * self.step[d] for d, n in enumerate(shape)]
        self.nodes = torch.cartesian_prod(*axes).reshape(-1, len(shape)).double()

        self.vector = torch.tensor(
            [math.log(lengthscale), 2 * math.log(signal), 2 * math.log(noise)],
            dtype=torch.float64,
            requires_grad=True,
        )

        self.projection, self.residual = projection, residual
        m = len(self.nodes)
        self.c, self.root = torch.zeros(m, dtype=torch.float64), RootCache(m, rank)
        self.A = torch.zeros((m, m), dtype=torch.float64)
        self.yy, self.log_v, self.n = 0.0, 0.0, 0

        self.optimiser = torch.optim.Adam([self.vector], lr=rate)
        self.slow = (
            None
            if projection is None
            else torch.optim.Adam([projection.weights], lr=projection_rate)
        )

    # --- parts ------------------------------------------------------------------------------------
    def kernel(self, vector: Tensor | None = None):
        """k at [log ℓ, log s², log σ²]; at the present hyper-parameters if None."""
        vector = self.vector if vector is None else vector
        return type(make_kernel(self.kernel_name, 1.0, 1.0))(vector[1].exp(), vector[0].exp())

    def noise(self, vector: Tensor | None = None) -> Tensor:
        """σ² at [log ℓ, log s², log σ²]."""
        vector = self.vector if vector is None else vector
        return torch.ones((), dtype=torch.float64) if self.fixed_noise else vector[2].exp()

    def weights(self, x: Tensor) -> Tensor:
        """W (N, m) at x (N, D), through the projection; differentiable in it."""
        inner = x.double() if self.projection is None else self.projection(x.double())
        return interpolation_matrix((inner - self.low) / self.step + 2.0, self.shape)

    def _solved(self, vector: Tensor):
        """K_uu, K_uu L, chol Q and σ²."""
        gram = self.kernel(vector)(self.nodes, self.nodes)
        noise, wide = self.noise(vector), gram @ self.root.L
        q = self.root.L.mT @ wide / noise
        q = 0.5 * (q + q.mT) + torch.eye(len(q), dtype=torch.float64)
        return gram, wide, torch.linalg.cholesky(q), noise

    def _reduced(
        self, gram: Tensor, wide: Tensor, factor: Tensor, noise: Tensor, right: Tensor
    ) -> Tensor:
        """P right, (m, N); the other arguments as of `_solved`."""
        inner = torch.cholesky_solve(wide.mT @ right, factor)
        return gram @ right - wide @ inner / noise

    def log_evidence(self, vector: Tensor | None = None) -> Tensor:
        """log p(y) of all samples so far at [log ℓ, log s², log σ²]; differentiable."""
        vector = self.vector if vector is None else vector

        gram, wide, factor, noise = self._solved(vector)
        c = self.c[:, None]
        fit = (self.yy - (c.mT @ self._reduced(gram, wide, factor, noise, c))[0, 0] / noise) / noise

        determinant = 2.0 * factor.diagonal().log().sum() + self.n * noise.log() + self.log_v
        return -0.5 * (fit + determinant + self.n * math.log(2 * math.pi))

    # --- data in ----------------------------------------------------------------------------------
    @torch.no_grad()
    def condition(self, x: Tensor, y: Tensor, variance: Tensor | None = None) -> None:
        """Absorb samples without learning.

        Args:
            x: places (N, D).
            y: targets (N,).
            variance: v of each (N,), in units of σ² (of 1 where the noise is fixed).

        Raises:
            ValueError: the noise is fixed, and no variance is given.
        """
        v = torch.ones(len(y), dtype=torch.float64) if variance is None else variance.double()
        if self.fixed_noise and variance is None:
            raise ValueError("fixed_noise: every sample needs its variance")

        y = y.double()
        w = self.weights(x)
        self.c += w.mT @ (y / v)
        self.yy += float((y * y / v).sum())
        self.log_v += float(v.log().sum())

        rows = w / v.sqrt()[:, None]
        self.A = self.A + rows.mT @ rows  # not in place: a fantasy shares it

        for row in rows:
            self.root.add(row)
        # the rank does not suffice: the root anew from A, with twice the rank
        while self.root.dropped:
            self.root = RootCache.from_matrix(self.A, min(2 * self.root.rank, len(self.A)))
        self.n += len(y)

    def projection_loss(self, x: Tensor, y: Tensor, variance: Tensor | None = None) -> Tensor:
        """−log p(y_t | y_1 … y_{t−1}) of new samples, one by one, for the projection (eq. 18).

        It is a function of the projection. W of the past is held, and log p(y_1 … y_t) − log p(y_1
        … y_{t−1}) is its negative, so its gradient is that of the evidence with respect to the
        newest sample's projection.

        Args:
            x: places (N, D).
            y: targets (N,).
            variance: v of each (N,), in units of σ²; 1 if None.

        Returns:
            The sum over the samples, nats: a scalar.

        Reference:
            Stanton et al. 2021, eq. 18.
        """
        gram, wide, factor, noise = (t.detach() for t in self._solved(self.vector))
        w = self.weights(x)
        v = torch.ones(len(y), dtype=torch.float64) if variance is None else variance.double()

        reduced = self._reduced(gram, wide, factor, noise, torch.cat([self.c[:, None], w.mT], 1))
        mean = w @ reduced[:, 0] / noise
        variance_of_y = (w * reduced[:, 1:].mT).sum(1) + noise * v

        return (
            0.5
            * (
                (y.double() - mean).square() / variance_of_y
                + variance_of_y.log()
                + math.log(2 * math.pi)
            ).sum()
        )

    def observe(
        self, x: Tensor, y: Tensor, variance: Tensor | None = None, learn: bool = True
    ) -> None:
        """Take a step of the projection, absorb the samples, take one of the hyper-parameters.

        Args:
            x: places (N, D).
            y: targets (N,).
            variance: v of each (N,), in units of σ² (of 1 where the noise is fixed).
            learn: whether the two steps are taken.

        Raises:
            ValueError: the noise is fixed, and no variance is given.

        Reference:
            Stanton et al. 2021, Algorithm 1.
        """
        if learn and self.slow is not None:
            self.slow.zero_grad()
            self.projection_loss(x, y, variance).backward()
            self.slow.step()

        # the samples enter between the two steps, as in the paper
        self.condition(x, y, variance)
        if learn:
            self.optimiser.zero_grad()
            (-self.log_evidence() / self.n).backward()
            if bool(torch.isfinite(self.vector.grad).all()):
                self.optimiser.step()

    # --- out --------------------------------------------------------------------------------------
    @torch.no_grad()
    def predict(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and latent variance (N,) at x (N, D)."""
        parts, w = self._solved(self.vector), self.weights(x)
        reduced = self._reduced(*parts, torch.cat([self.c[:, None], w.mT], 1))
        variance = (w * reduced[:, 1:].mT).sum(1)

        if self.residual:
            variance = variance + (self.vector[1].exp() - ((w @ parts[0]) * w).sum(1)).clamp_min(
                0.0
            )
        return w @ reduced[:, 0] / parts[3], variance.clamp_min(0.0)

    def fantasize(self, x: Tensor) -> "DenseWiski":
        """A copy that has absorbed its own mean at x (N, D)."""
        new = copy.copy(self)
        new.c, new.root = self.c.clone(), copy.copy(self.root)
        new.condition(x, self.predict(x)[0], torch.ones(len(x)))
        return new
