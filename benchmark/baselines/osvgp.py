"""O-SVGP: the uncollapsed streaming bound of Bui, Nguyen & Turner (2017), eq. 5, by a few gradient steps a batch."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from benchmark.baselines.kernel import Kernel, choose
from benchmark.batch import UNIT, prediction
from gp_mapping.core.types import Prediction

__all__ = ["OSVGP"]

_CHUNK = 2000
_NODES, _WEIGHTS = (torch.from_numpy(v) for v in np.polynomial.hermite_e.hermegauss(20))
_WEIGHTS = _WEIGHTS / math.sqrt(2 * math.pi)


class OSVGP:
    """F = Σ E_q[log p(y|f)] − KL(q(b)‖p(b)) + E_q(a)[log q_old(a) − log p_old(a)], q(a) = ∫ p(a|b) q(b) db.

    q(b) is N(L m, L S Lᵀ), S = CCᵀ, L the factor of K(z, z): m, C and θ take `steps` of Adam for each batch.
    """

    def __init__(
        self,
        theta: Tensor,
        *,
        inducing: Tensor | None = None,
        budget: int = 200,
        fresh: float = 0.3,
        steps: int = 5,
        rate: float = 0.02,
        learn: bool = True,
        likelihood: str = "gaussian",
        centre: float | None = None,
        constant: float = 20.0,
        jitter: float = 1e-6,
        seed: int = 0,
    ):
        """likelihood: gaussian, or bernoulli (probit, labels 0 and 1, nothing is scaled). The rest as for OSGPR."""
        self.theta, self.kernel, self.likelihood = (
            theta.clone(),
            Kernel(constant, jitter),
            likelihood,
        )
        self.unit, self.centre = (UNIT, centre) if likelihood == "gaussian" else (1.0, 0.0)
        self.budget, self.fresh = budget, 0.0 if inducing is not None else fresh
        self.steps, self.rate, self.learn = steps, rate, learn
        self.generator = torch.Generator().manual_seed(seed)
        self.z, self.mean, self.root, self.optimiser = inducing, None, None, None

    def update(self, x: Tensor, y: Tensor) -> None:
        """Absorb N samples."""
        y = y.reshape(-1, 1) / self.unit
        if self.centre is None:
            self.centre = float(y.mean())
        old = (
            None
            if self.mean is None
            else tuple(
                v.detach().clone()
                for v in (
                    self.z,
                    self.theta,
                    self.kernel.factor(self.z, self.theta),
                    self.mean,
                    self.root.tril(),
                )
            )
        )
        z = choose(self.z, x, self.budget, self.fresh, self.generator)
        if old is None or z is not self.z:
            self.z = z
            self._start(old)
        for _ in range(self.steps):
            self.optimiser.zero_grad()
            (-self.bound(x, y - self.centre, old) / len(x)).backward()
            self.optimiser.step()

    @torch.no_grad()
    def _start(self, old: tuple | None) -> None:
        """q(b) = ∫ p(b|a) q_old(a) da: nothing has been learned yet from the batch, nothing lost."""
        m = len(self.z)
        mean, root = torch.zeros(m, 1, dtype=torch.float64), torch.eye(m, dtype=torch.float64)
        if old is not None:
            L = self.kernel.factor(self.z, self.theta)
            p = self._cross(L, old[0], old[2])  # (M, M_old)
            mean = p @ old[3]
            half = p @ old[4]
            root = torch.linalg.cholesky((1 + 1e-9) * root - p @ p.mT + half @ half.mT)
        self.mean, self.root = mean.requires_grad_(), root.requires_grad_()
        groups = [self.mean, self.root, *([self.theta.requires_grad_()] if self.learn else [])]
        self.optimiser = torch.optim.Adam(groups, self.rate)

    def _cross(self, L: Tensor, z: Tensor, factor: Tensor) -> Tensor:
        """P = L⁻¹k(b, a)L_a⁻ᵀ, (M, M_old)."""
        left = torch.linalg.solve_triangular(
            L, self.kernel.inducing(self.z, z, self.theta), upper=False
        )
        return torch.linalg.solve_triangular(factor.mT, left, upper=True, left=False)

    def bound(self, x: Tensor, y: Tensor, old: tuple | None) -> Tensor:
        """F; y (N, 1) centred, µT."""
        root = self.root.tril()
        L = self.kernel.factor(self.z, self.theta)
        mean, variance = self._latent(x, L, root)
        value = self.expected(y[:, 0], mean, variance)
        value = (
            value - 0.5 * (root.square().sum() + self.mean.square().sum() - len(root)) + _logs(root)
        )
        if old is None:
            return value
        z, _, factor, before, sigma = old
        p = self._cross(L, z, factor)
        left = torch.linalg.solve_triangular(
            factor, self.kernel.inducing(z, z, self.theta), upper=False
        )
        own = torch.linalg.solve_triangular(factor.mT, left, upper=True, left=False)
        half = p.mT @ root
        cov = own - p.mT @ p + half @ half.mT  # of a under q, in the old whitened coordinates
        mu = p.mT @ self.mean
        gap = torch.linalg.solve_triangular(sigma, mu - before, upper=False)
        ratio = torch.cholesky_solve(cov, sigma).diagonal().sum() + gap.square().sum()
        return value - _logs(sigma) - 0.5 * ratio + 0.5 * (cov.diagonal().sum() + mu.square().sum())

    def _latent(self, x: Tensor, L: Tensor, root: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of f − centre, (N,) each."""
        a = torch.linalg.solve_triangular(L, self.kernel(self.z, x, self.theta), upper=False)
        variance = (
            self.kernel.variance(self.theta) - a.square().sum(0) + (root.mT @ a).square().sum(0)
        )
        return (a.mT @ self.mean)[:, 0], variance.clamp_min(1e-12)

    def expected(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """Σ E[log p(y|f)], f ~ N(mean, variance)."""
        if self.likelihood == "gaussian":
            noise = self.theta[2].exp()
            return (
                -0.5
                * (
                    ((y - mean).square() + variance) / noise + math.log(2 * math.pi) + self.theta[2]
                ).sum()
            )
        f = mean[:, None] + variance.sqrt()[:, None] * _NODES
        return (torch.special.log_ndtr((2 * y - 1)[:, None] * f) @ _WEIGHTS).sum()

    @torch.no_grad()
    def predict(self, x: Tensor, *_, **__) -> Prediction:
        """Of the latent field at x (N, D)."""
        L, root = self.kernel.factor(self.z, self.theta), self.root.tril()
        parts = [self._latent(part, L, root) for part in x.split(_CHUNK)]
        mean, variance = (torch.cat(v) for v in zip(*parts))
        if self.likelihood != "gaussian":
            return Prediction(mean[:, None], variance[:, None], torch.zeros(1, dtype=torch.float64))
        return prediction(mean + self.centre, variance, float(self.theta[2].exp()))

    def probability(self, x: Tensor) -> Tensor:
        """p(y = 1) at x, (N,): Φ(m/√(1 + v)); of the bernoulli likelihood."""
        p = self.predict(x)
        return torch.special.ndtr(p.mean[:, 0] / (1 + p.variance[:, 0]).sqrt())


def _logs(root: Tensor) -> Tensor:
    """½ log|CCᵀ|."""
    return root.diagonal().abs().log().sum()
