"""SOLVE-GP on stored data: natural gradients in minibatches for q, Adam on bound (8) for θ.

Every sample keeps its site (λ_i, β_i). A minibatch replaces its own sites in D and r by those at
the present q:

    (λ_i, β_i) ← (1 − ρ)(λ_i, β_i) + ρ (α_i + β_i E f_i, β_i)
    D += Σ Δβ_i a_i a_iᵀ,   r += Σ a_i Δλ_i

which is these samples' contribution to the natural-gradient step (Chang et al. 2023, eq. 23 in the
λ form), without the noise of a minibatch: the fixed point is the optimum of the bound, and a
Gaussian likelihood is there after one epoch. While θ is learned, the whitened D and r stay as they
are within an epoch, and are summed again after it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.kernels.stationary import scaled_square_distance
from gp_mapping.core.linalg import solve_lower
from gp_mapping.core.models.solve_gp.model import SolveGP
from gp_mapping.core.sparse.basis import greedy_inputs
from gp_mapping.core.types import Samples
from gp_mapping.errors import NumericalError
from gp_mapping.offline.solve_gp_bounds import Blocks, bound

__all__ = ["BatchTrainer"]

_POOL = 5000  # samples among which inducing inputs are chosen
_LEARNED = 3  # log ℓ, log s², log s_p²


class BatchTrainer:
    """Trains an empty SolveGP on a data set.

    Afterwards it is a map like any other, and may go on with a stream. The map's own seed draws the
    minibatches.

    Args:
        model: the map.
        data: all samples, SI.
        minibatch: samples in a step.
        rate: ρ of the natural gradient.
        learn: whether θ (ℓ, s, s_p) is learned, too, by Adam; where ℓ and s trade against each
            other that takes many epochs.
        learning_rate: of Adam.
    """

    def __init__(
        self,
        model: SolveGP,
        data: Samples,
        *,
        minibatch: int = 256,
        rate: float = 1.0,
        learn: bool = False,
        learning_rate: float = 0.02,
    ):
        if not model.empty:
            raise ValueError(f"the map has {model.samples} samples already; train an empty one")

        self.model, self.minibatch, self.rate, self.learn = model, minibatch, rate, learn

        parts = model.prepare(data)
        self.y, self.own, self.extra = parts.y, parts.noise, parts.extra
        self.weight = model.likelihood.weight(parts.count)
        self.x, self.heading = (
            model.theta.sensor_place(parts.x, parts.velocity, parts.heading),
            parts.heading,
        )

        # inducing inputs from a random choice of the samples
        if model.fixed is None:
            pool = torch.randperm(len(self.x), generator=model.generator)[:_POOL].to(self.x.device)
            chosen = greedy_inputs(
                model.theta.kernel(),
                self.x[pool],
                model.residual_at(model.theta),
                model.max_inducing,
            )
            model.place_inputs(self.x[pool][chosen])

        model.samples, model.unremembered_empty, model.unremembered_model_noise = (
            len(self.x),
            False,
            not bool((self.own > 0).any()),
        )

        self.lam = torch.zeros_like(self.y)
        self.beta = torch.zeros_like(self.own)
        if not model.likelihood.conjugate:
            self._begin()

        self.learning_rate, self.steps = learning_rate, 0
        self._moments = torch.zeros(2, _LEARNED, dtype=torch.float64)

    @property
    def blocks(self) -> Blocks:
        """The present q(u) q(v_⊥)."""
        p = self.model.posterior
        nothing = p.weights.new_zeros((len(p.weights) - len(p.R),) * 2)
        second = (
            torch.eye(len(nothing), dtype=nothing.dtype) if p.orthogonal is None else p.orthogonal
        )
        return Blocks(p.weights, p.R, second.to(p.R.device))

    @torch.no_grad()
    def _begin(self) -> None:
        """Set the sites with which, according to the likelihood, a first step is safe."""
        every = slice(0, len(self.x))
        lam, beta = self.model.likelihood.start(self.y, self.noise(every))
        self.lam, self.beta = self.weight[:, None] * lam, self.weight * beta
        self._sum_again()

    def noise(self, indices) -> Tensor:
        """Noise variance of some samples, by their indices: (n,)."""
        return self.model.noise(self.own[indices], self.extra[indices], self.model.theta)

    @torch.no_grad()
    def evidence(self) -> float:
        """Bound (8) on all of the data, in inner units."""
        total, q, count = 0.0, self.blocks, len(self.x)
        for indices in torch.arange(count, device=self.x.device).split(4096):
            whitened = self.model.basis.whitened(self.x[indices], self.heading[indices])
            residual, fraction = (
                self.model.basis.residual(self.x[indices], whitened),
                len(indices) / count,
            )
            total += fraction * float(
                bound(
                    q,
                    self.model.likelihood,
                    whitened,
                    residual,
                    self.y[indices],
                    self.noise(indices),
                    self.weight[indices],
                    fraction,
                )
            )
        return total

    def epoch(self) -> None:
        """Use every sample once, in random order."""
        order = torch.randperm(len(self.x), generator=self.model.generator).to(self.x.device)

        for indices in order.split(self.minibatch):
            self._natural_gradient(indices)
            if self.learn:
                self._ascend(indices)

        # θ has moved: the sums follow
        if self.learn:
            self._sum_again()
        self.model.mark_changed()

    @torch.no_grad()
    def _natural_gradient(self, indices: Tensor) -> None:
        """Replace the sites of a minibatch by those at the present q."""
        model = self.model
        whitened, weight = (
            model.basis.whitened(self.x[indices], self.heading[indices]),
            self.weight[indices],
        )

        # changes of λ and β
        if model.likelihood.conjugate:
            lam, beta = model.likelihood.sites(
                self.y[indices], self.y[indices], self.beta[indices], self.noise(indices)
            )
            lam = self.rate * (weight[:, None] * lam - self.lam[indices])
            beta = self.rate * (weight * beta - self.beta[indices])
        else:
            mean, reached = model.marginals(whitened)
            variance = reached + model.basis.residual(self.x[indices], whitened)
            alpha, beta, damping = model.likelihood.step(
                self.y[indices], mean, variance, self.noise(indices)
            )
            old = self.beta[indices][:, None]
            beta = self.rate * (weight * beta - self.beta[indices])
            pull = weight[:, None] * alpha + old * mean - self.lam[indices]
            lam = beta[:, None] * mean + self.rate * damping[:, None] * pull

        model.sites.add(whitened, beta, lam)
        model.discard_posterior()
        self.lam[indices] += lam
        self.beta[indices] += beta

    def features(self, vector: Tensor, some: Tensor) -> tuple[Tensor, Tensor]:
        """a(x) (R, N) and residual (N,) as functions of the kernel's hyper-parameters.

        Args:
            vector: log ℓ and log s² first; differentiable.
            some: indices of samples.
        """
        basis, x, theta = self.model.basis, self.x[some], self.model.theta
        correlation, scales, signal = (
            theta.kernel().correlation,
            theta.lengthscales(vector[0].exp()),
            vector[1].exp(),
        )

        factor = torch.linalg.cholesky(
            signal * correlation(scaled_square_distance(basis.z, basis.z, scales))
        )
        rows = solve_lower(factor, signal * correlation(scaled_square_distance(basis.z, x, scales)))

        fixed = basis.whitened(x, self.heading[some])[: basis.features]
        return torch.cat([fixed, rows]), (signal - rows.square().sum(0)).clamp_min(0.0)

    def _ascend(self, indices: Tensor) -> None:
        """Take one step of Adam on the minibatch's estimate of bound (8).

        q is held in whitened coordinates.
        """
        model, own, q = self.model, self.own[indices], self.blocks
        old = model.theta.vector()
        vector = old[:_LEARNED].to(self.x.device).requires_grad_(True)

        with torch.enable_grad():
            whitened, residual = self.features(vector, indices)
            noise = torch.where(own > 0, own, vector[2].exp()) + self.extra[indices]
            value = bound(
                q,
                model.likelihood,
                whitened,
                residual,
                self.y[indices],
                noise,
                self.weight[indices],
                len(indices) / len(self.x),
            )
            (value / len(self.x)).backward()

        gradient = vector.grad.cpu()
        if not bool(torch.isfinite(gradient).all()):
            return

        # Adam, with its usual constants
        self.steps += 1
        self._moments[0].lerp_(gradient, 0.1)
        self._moments[1].lerp_(gradient.square(), 0.001)
        mean, square = (
            self._moments[0] / (1 - 0.9**self.steps),
            self._moments[1] / (1 - 0.999**self.steps),
        )
        old[:_LEARNED] += self.learning_rate * mean / (square.sqrt() + 1e-8)

        try:
            model.place_inputs(model.basis.z, model.theta.with_vector(old))
        except NumericalError:
            return  # the inputs are collinear at this θ: the step is left out

    @torch.no_grad()
    def _sum_again(self) -> None:
        """Sum D and r again from every sample's site, at the present θ."""
        sites = self.model.sites
        sites.scale(0.0)
        for indices in torch.arange(len(self.x), device=self.x.device).split(4096):
            sites.add(
                self.model.basis.whitened(self.x[indices], self.heading[indices]),
                self.beta[indices],
                self.lam[indices],
            )
