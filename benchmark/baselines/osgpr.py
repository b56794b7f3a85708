"""O-SGPR: the collapsed streaming bound of Bui, Nguyen & Turner (2017), sec. 3.1 and appendix."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmark.baselines.kernel import Kernel, choose
from benchmark.batch import UNIT, prediction
from gp_mapping.core.types import Prediction

__all__ = ["OSGPR"]

_CHUNK = 2000


@dataclass(frozen=True)
class _State:
    """q(a), a the inducing variables at z, whitened by L: precision I + E, mean (I + E)⁻¹h; θ as it then was."""

    z: Tensor  # (M, D)
    theta: Tensor  # (3,)
    L: Tensor  # (M, M)
    excess: Tensor  # E (M, M)
    h: Tensor  # (M, 1)
    constant: Tensor  # ½ log|I + E| − ½ hᵀ(I + E)⁻¹h


class OSGPR:
    """q(b) ∝ p(b) exp(E_p(f|b)[log p(y|f)] + E_p(a|b)[log q_old(a)/p_old(a)]), the optimum of the streaming bound.

    In whitened coordinates of the new b: with A = L_b⁻¹k(b, x)/σ, P = L_b⁻¹k(b, a)L_a⁻ᵀ,
    I + E_b = I + P E_a Pᵀ + AAᵀ, h_b = P h_a + Ay/σ. Their D_a is (L_a⁻ᵀE_aL_a⁻¹)⁻¹, which need not exist here.
    """

    def __init__(
        self,
        theta: Tensor,
        *,
        inducing: Tensor | None = None,
        budget: int = 200,
        fresh: float = 0.3,
        steps: int = 0,
        rate: float = 0.02,
        centre: float | None = None,
        constant: float = 20.0,
        jitter: float = 1e-6,
        seed: int = 0,
    ):
        """inducing: z (M, D), which then stays; else it is chosen anew with every batch, `fresh` of it from the batch.
        steps: of Adam on θ for each batch.  centre, constant: µT; the first batch's mean if None."""
        self.theta, self.kernel, self.centre = (
            theta.clone().requires_grad_(steps > 0),
            Kernel(constant, jitter),
            centre,
        )
        self.budget, self.fresh, self.steps = budget, 0.0 if inducing is not None else fresh, steps
        self.optimiser = torch.optim.Adam([self.theta], rate) if steps else None
        self.generator = torch.Generator().manual_seed(seed)
        self.z, self.state = inducing, None
        self.evidence = 0.0  # the bounds of all batches: a bound to log p(y) while z and θ stay

    def update(self, x: Tensor, y: Tensor) -> None:
        """Absorb N samples: `steps` on θ, then q(b)."""
        y = y.reshape(-1, 1) / UNIT
        if self.centre is None:
            self.centre = float(y.mean())
        self.z = choose(self.z, x, self.budget, self.fresh, self.generator)
        for _ in range(self.steps):
            self.optimiser.zero_grad()
            (-self._collapse(x, y - self.centre)[1] / len(x)).backward()
            self.optimiser.step()
        with torch.no_grad():
            self.state, bound = self._collapse(x, y - self.centre)
        self.evidence += float(bound)

    def _collapse(self, x: Tensor, y: Tensor) -> tuple[_State, Tensor]:
        """The new state and the bound, both functions of θ."""
        z, theta, old, k = self.z, self.theta, self.state, self.kernel
        noise, eye = theta[2].exp(), torch.eye(len(z), dtype=x.dtype)
        still = (
            old is not None
            and old.z is z
            and torch.equal(old.theta, theta)
            and not torch.is_grad_enabled()
        )
        L = old.L if still else k.factor(z, theta)
        a = torch.linalg.solve_triangular(L, k(z, x, theta), upper=False)  # (M, N)
        excess, h = a @ a.mT / noise, a @ y / noise
        bound = -0.5 * len(x) * (math.log(2 * math.pi) + theta[2]) - 0.5 * y.square().sum() / noise
        bound = bound - 0.5 * (len(x) * k.variance(theta) - a.square().sum()) / noise
        if still:  # P = I, and a given b has no variance
            bound, excess, h = bound + old.constant, excess + old.excess, h + old.h
        elif old is not None:
            left = torch.linalg.solve_triangular(L, k.inducing(z, old.z, theta), upper=False)
            p = torch.linalg.solve_triangular(old.L.mT, left, upper=True, left=False)  # (M, M_old)
            inner = torch.linalg.solve_triangular(
                old.L, k.inducing(old.z, old.z, theta), upper=False
            )
            own = torch.linalg.solve_triangular(old.L.mT, inner, upper=True, left=False)
            bound = bound + old.constant - 0.5 * (old.excess * (own - p.mT @ p)).sum()
            excess, h = excess + p @ old.excess @ p.mT, h + p @ old.h
        excess = 0.5 * (excess + excess.mT)
        factor = torch.linalg.cholesky(eye + excess)
        constant = factor.diagonal().log().sum() - 0.5 * (h * torch.cholesky_solve(h, factor)).sum()
        return _State(z, theta.detach().clone(), L, excess, h, constant), bound - constant

    @torch.no_grad()
    def predict(self, x: Tensor, *_, **__) -> Prediction:
        """At x (N, D)."""
        s, means, variances = self.state, [], []
        factor = torch.linalg.cholesky(torch.eye(len(s.z), dtype=x.dtype) + s.excess)
        weights = torch.cholesky_solve(s.h, factor)
        for part in x.split(_CHUNK):
            a = torch.linalg.solve_triangular(s.L, self.kernel(s.z, part, s.theta), upper=False)
            half = torch.linalg.solve_triangular(factor, a, upper=False)
            means.append(a.mT @ weights)
            variances.append(
                self.kernel.variance(s.theta) - a.square().sum(0) + half.square().sum(0)
            )
        return prediction(
            torch.cat(means) + self.centre, torch.cat(variances), float(s.theta[2].exp())
        )
