"""Matérn-5/2 plus a constant, with θ = (log ℓ, log s², log σ²) as one differentiable vector; which z to keep."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from benchmark.batch import matern52

__all__ = ["Kernel", "choose", "logs"]


def logs(lengthscale: float, signal: float, noise: float) -> Tensor:
    """θ (3,). lengthscale: m.  signal, noise: variances, µT²."""
    return torch.tensor([lengthscale, signal, noise], dtype=torch.float64).log()


class Kernel:
    """k = s² Matérn-5/2(|x − x'|/ℓ) + c²; inducing variables also carry a white ε s², so that K can be factored."""

    def __init__(self, constant: float, jitter: float):
        """constant: c, µT."""
        self.constant, self.jitter = constant**2, jitter

    def __call__(self, a: Tensor, b: Tensor, theta: Tensor) -> Tensor:
        """(N, K) µT²."""
        return theta[1].exp() * matern52(a, b, theta[0].exp()) + self.constant

    def inducing(self, a: Tensor, b: Tensor, theta: Tensor) -> Tensor:
        """Between inducing variables: ε s² more where a and b are the same place, hence the same variable."""
        same = (torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist") == 0).to(a.dtype)
        return self(a, b, theta) + self.jitter * theta[1].exp() * same

    def variance(self, theta: Tensor) -> Tensor:
        """k(x, x), µT²."""
        return theta[1].exp() + self.constant

    def factor(self, z: Tensor, theta: Tensor) -> Tensor:
        """L with LLᵀ = K(z, z), (M, M)."""
        return torch.linalg.cholesky(self.inducing(z, z, theta))


def choose(
    old: Tensor | None, x: Tensor, budget: int, fresh: float, generator: torch.Generator
) -> Tensor:
    """Bui et al.'s rule: a random (1 − fresh) of the budget from the old z, the rest from the new x; no place twice.

    Until the budget is full, nothing of the old is dropped.  fresh 0 keeps the old ones for good.
    """
    if old is not None and (fresh == 0 or not len(x)):
        return old
    x = torch.unique(x, dim=0)
    if old is None:
        return x[torch.randperm(len(x), generator=generator)[:budget]]
    x = x[~(x[:, None] == old[None]).all(-1).any(1)]
    new = x[torch.randperm(len(x), generator=generator)[: math.ceil(fresh * budget)]]
    kept = torch.randperm(len(old), generator=generator)[: budget - len(new)]
    return torch.cat([old[kept], new])
