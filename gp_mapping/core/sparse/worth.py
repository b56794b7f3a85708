"""What an inducing input is worth: how much the samples tell of that which the other inputs leave open.

Given all other inputs, the prior leaves the variance d_j of u_j, and the sites tell of that rest by the precision Λ_jj:

    d_j = 1 / (K⁻¹)_jj,    Λ = K⁻¹ G K⁻¹,    w_j = Λ_jj d_j,    I_j = ½ log₂(1 + w_j) bits

I_j is the information of the data about what only u_j can express: without that input it is lost, and nothing else is.
A candidate x has d = k − q and w = Σ_i β_i c(x_i, x)² / d, c the residual covariance k − q between x and the samples:
what the trace term ½ Σ β (k − q) of the variational bound would lose less with it (Titsias 2009; Burt et al. 2019).
Where w ≪ 1 the posterior of that direction is its prior, with the input or without.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gp_mapping.core.linalg import solve_lower

__all__ = ["SMOOTHED", "Sparing", "bits_of", "ratio_of"]

SMOOTHED = 9.0  # noise variances, three of its standard deviations: what a budget leaves out beyond that is seen


def ratio_of(bits: float) -> float:
    """w of an input that tells so many bits."""
    return 4.0**bits - 1.0


def bits_of(ratio: float) -> float:
    """Bits that an input of that w tells."""
    return 0.5 * math.log2(1.0 + ratio)


@dataclass
class Sparing:
    """Inputs taken away one by one, the least worth first; what the others are worth grows as they go.

    Taking j away puts its mean given the others in its place: with b = −(K⁻¹)_·j / (K⁻¹)_jj, b_j = 0,
    Λ ← Λ + bΛ_j·  + Λ_·j bᵀ + Λ_jj bbᵀ and K⁻¹ ← K⁻¹ − (K⁻¹)_·j (K⁻¹)_j· / (K⁻¹)_jj.

    Attributes:
        prior, told: K⁻¹ and Λ (M, M) of those that are left, rows of the others 0.
        alive: (M,) bool.
        worst: the largest w that went, 0 where none did.
    """

    prior: Tensor
    told: Tensor
    alive: Tensor
    worst: float = 0.0

    @classmethod
    def of(cls, factor: Tensor, excess: Tensor, least: float, most: int) -> Sparing | None:
        """Before any has gone; None where each is worth `least` and they are no more than `most`.

        Args:
            factor: L = chol K (M, M).
            excess: D − I of the inducing rows, whitened: L⁻¹GL⁻ᵀ.
            least: w of the least input that stays.
            most: inputs that may stay.
        """
        eye = torch.eye(len(factor), dtype=torch.float64, device=factor.device)
        inverse = solve_lower(factor.double(), eye)
        half = excess @ inverse
        worth = (inverse * half).sum(0) / inverse.square().sum(0)
        if len(factor) <= most and bool((worth >= least).all()):
            return None
        alive = torch.ones(len(factor), dtype=torch.bool, device=factor.device)
        return cls(inverse.mT @ inverse, inverse.mT @ half, alive)

    @property
    def left(self) -> int:
        """How many there are still."""
        return int(self.alive.sum())

    def go_on(self, least: float, down_to: int | None, most: int | None = None) -> bool:
        """Take away those below `least`, and others until `down_to` are left, one stays; `most` of them.

        Whether no more are to go.
        """
        prior, told, left, gone = self.prior, self.told, self.left, 0
        while left > 1:
            if most is not None and gone >= most:
                return False
            worth = (told.diagonal() / prior.diagonal()).masked_fill(~self.alive, math.inf)
            j = int(worth.argmin())
            value = float(worth[j])
            if value >= least and (down_to is None or left <= down_to):
                break

            column, row, own = prior[:, j].clone(), told[:, j].clone(), float(told[j, j])
            mean = column / -column[j]
            mean[j] = 0.0
            prior.addr_(column, column, alpha=-1.0 / float(column[j]))
            told.addmm_(torch.stack([mean, row], 1), torch.stack([row + own * mean, mean]))
            for matrix in (prior, told):
                matrix[j, :] = matrix[:, j] = 0.0
            prior[j, j] = 1.0
            self.alive[j] = False
            left, gone, self.worst = left - 1, gone + 1, max(self.worst, value)
        return True

    def state_dict(self) -> dict:
        return {
            "prior": self.prior.clone(),
            "told": self.told.clone(),
            "alive": self.alive.clone(),
            "worst": self.worst,
        }

    @classmethod
    def from_state_dict(cls, state: dict, device) -> Sparing:
        return cls(
            *(state[name].to(device) for name in ("prior", "told", "alive")), float(state["worst"])
        )
