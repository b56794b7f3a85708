"""The worth of an inducing input: the information in the data about what only it can express.

Given all other inputs, the prior variance of u_j is d_j, and the sites measure it with precision
Λ_jj:

    d_j = 1 / (K⁻¹)_jj,    Λ = K⁻¹ G K⁻¹,    w_j = Λ_jj d_j,    I_j = ½ log₂(1 + w_j) bits

I_j is the information of the data about what only u_j can express: without that input it is lost,
and nothing else is. Where w ≪ 1 the posterior of that direction is its prior, with the input or
without.

A candidate x has d = k − q and w = Σ_i β_i c(x_i, x)² / d, where c is the residual covariance k − q
between x and the samples: by so much the trace term ½ Σ β (k − q) of the variational bound shrinks
with it (Titsias 2009; Burt et al. 2019).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import is_synchronous
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.linalg import solve_lower
from gp_mapping.core.sparse import greedy

__all__ = ["SMOOTHED", "InputRemoval", "bits_of", "least_fraction", "least_residual", "ratio_of"]

# In noise variances: a budget that leaves out more than three standard deviations of the noise
# visibly smooths the map.
SMOOTHED = 9.0

_LEAST = 1e-8  # of a float64 basis: residual variance in s² that rounding lets it tell from none
_EPSILONS = 100.0  # the same of any basis, in units of its rounding


def least_fraction(dtype: torch.dtype) -> float:
    """Least residual variance of an input, in s², that rounding lets a basis tell from none."""
    return max(_LEAST, _EPSILONS * torch.finfo(dtype).eps)


def least_residual(theta: Theta, tolerance: float, dtype: torch.dtype) -> float:
    """Residual variance up to which no sample asks for an input, squared inner units.

        min(tolerance s², s_p²)

    A field may be large and smooth beside its noise, as one with a slope is. There a residual that
    is little beside s² is much beside s_p²: left out, it is an error of the mean that no variance
    knows of. What is less than the noise, the worth of an input judges.

    Args:
        theta: gives s and s_p.
        tolerance: as a fraction of s².
        dtype: of the basis, whose rounding bounds it from below.
    """
    signal = theta.signal_stddev**2
    bound = max(theta.noise_stddev**2, least_fraction(dtype) * signal)
    return min(tolerance * signal, bound)


def ratio_of(bits: float) -> float:
    """The ratio w of an input that is worth so many bits."""
    return 4.0**bits - 1.0


def bits_of(ratio: float) -> float:
    """The information, in bits, of an input with ratio w."""
    return 0.5 * math.log2(1.0 + ratio)


@dataclass
class InputRemoval:
    """Removes inducing inputs one by one, the one of least worth first.

    Removing j replaces u_j by its mean given the others, so their worth grows. With
    b = −(K⁻¹)_·j / (K⁻¹)_jj, of which b_j = −1 takes row j to 0,

        Λ ← Λ + bΛ_j· + Λ_·j bᵀ + Λ_jj bbᵀ,   K⁻¹ ← K⁻¹ − (K⁻¹)_·j (K⁻¹)_j· / (K⁻¹)_jj

    Attributes:
        prior: K⁻¹ (M, M) of the inputs that remain; rows of the others are 0, with 1 on the
            diagonal.
        data_precision: Λ (M, M) of the inputs that remain; rows of the others are 0.
        alive: which inputs remain, (M,) bool.
        remaining: number of these.
        worst: the largest w that was removed, 0 where none was.
    """

    prior: Tensor
    data_precision: Tensor
    alive: Tensor
    remaining: int
    worst: float = 0.0

    @classmethod
    def start(cls, factor: Tensor, excess: Tensor, least: float, most: int) -> InputRemoval | None:
        """The state before any removal.

        Args:
            factor: L = chol K, (M, M).
            excess: D − I of the inducing rows, L⁻¹GL⁻ᵀ (M, M).
            least: w of the least input that stays.
            most: number of inputs that may stay.

        Returns:
            None where nothing is to be removed: there are at most `most`, each worth `least`.
        """
        eye = torch.eye(len(factor), dtype=torch.float64, device=factor.device)
        inverse = solve_lower(factor.double(), eye)
        excess_inverse = excess @ inverse
        # w_j from the diagonals of Λ = L⁻ᵀ(D − I)L⁻¹ and K⁻¹ = L⁻ᵀL⁻¹ alone
        worth = (inverse * excess_inverse).sum(0) / inverse.square().sum(0)
        if len(factor) <= most and bool((worth >= least).all()):
            return None

        alive = torch.ones(len(factor), dtype=torch.bool, device=factor.device)
        return cls(inverse.mT @ inverse, inverse.mT @ excess_inverse, alive, len(factor))

    def advance(self, least: float, down_to: int | None, most: int | None = None) -> bool:
        """Remove inputs, the one of least worth first; at least one stays.

        Args:
            least: inputs with a w below it are removed.
            down_to: others are removed until this many remain; None: no others.
            most: removals in this call; None: no bound.

        Returns:
            Whether no more are to be removed.
        """
        if not is_synchronous(self.alive.device):
            return self._advance_on_card(least, down_to, most)

        prior, data, remaining, removed = self.prior, self.data_precision, self.remaining, 0
        while remaining > 1:
            if most is not None and removed >= most:
                return False

            worth = (data.diagonal() / prior.diagonal()).masked_fill(~self.alive, math.inf)
            j = int(worth.argmin())
            value = float(worth[j])
            if value >= least and (down_to is None or remaining <= down_to):
                break

            # the two updates of the class docstring, with b = mean
            column, row, own = prior[:, j].clone(), data[:, j].clone(), float(data[j, j])
            mean = column / -column[j]
            prior.addr_(column, column, alpha=-1.0 / float(column[j]))
            data.addmm_(torch.stack([mean, row], 1), torch.stack([row + own * mean, mean]))

            for matrix in (prior, data):
                matrix[j, :] = matrix[:, j] = 0.0
            prior[j, j] = 1.0  # a divisor above that is not 0
            self.alive[j] = False
            self.remaining = remaining = remaining - 1
            removed, self.worst = removed + 1, max(self.worst, value)
        return True

    def _advance_on_card(self, least: float, down_to: int | None, most: int | None) -> bool:
        """As `advance`, on a card."""
        before = self.remaining
        limit = before - 1 if most is None else min(most, before - 1)

        removed, worst = greedy.remove_inputs(
            self.prior,
            self.data_precision,
            self.alive,
            lambda gone: down_to is None or before - gone <= down_to,
            least,
            limit,
        )
        self.remaining, self.worst = before - removed, max(self.worst, worst)
        return removed < limit or self.remaining == 1

    def state_dict(self) -> dict:
        """State for `from_state_dict`."""
        return {
            "prior": self.prior.clone(),
            "told": self.data_precision.clone(),
            "alive": self.alive.clone(),
            "worst": self.worst,
        }

    @classmethod
    def from_state_dict(cls, state: dict, device) -> InputRemoval:
        """The removal of a state, in tensors of its own.

        Args:
            state: of `state_dict`.
            device: of all tensors.
        """
        # copies, since `advance` writes into them: the state may be a tile's, which never changes
        tensors = (state[name].to(device, copy=True) for name in ("prior", "told", "alive"))
        return cls(*tensors, int(state["alive"].sum()), float(state["worst"]))
