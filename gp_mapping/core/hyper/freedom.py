"""How far a stated variance can be trusted while the hyper-parameters are hardly known.

A posterior variance is v(θ̂) at one θ. With few samples θ is known to a factor, and so is v. With
g = ∂ log v/∂ log θ and C the covariance of log θ (Laplace's approximation of its posterior),

    Var(log v) = gᵀ C g = 2/ν

which is that of a scaled inverse χ² with ν degrees of freedom. An error then has Student's t
distribution about v(θ̂), which is the mode in log v, and the normal's 95 % interval becomes that of
t where v is multiplied by (t_ν/1.96)².

The noise variance σ² of a sensor whose samples are far apart may be known to a factor of ten only,
and no inverse χ² has so wide a logarithm with a variance of its own. There log σ² is normal about
its mode with C's entry V, and the 95 % interval of an error e is ± q σ̂ with

    P(|e| > q σ̂) = E_z 2 Φ(−q exp(−√V z/2)) = 0.05,   z ~ N(0, 1)

But the noise is no more than all that varies. The variance s² + σ² of values, T, is known far
better than its parts: with g = ∂ log T/∂ log(s², σ²), log T has the variance gᵀ C g. So z ends
where σ² is T, at its upper 95 % bound.

Reference: Rasmussen and Williams 2006, section 5.2 (θ integrated out); Gelman et al., Bayesian Data
Analysis, 3.2.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch

from gp_mapping.core.hyper.agreed import Learned
from gp_mapping.core.hyper.bias import student_t_95

__all__ = ["degrees_of_freedom", "interval_factor", "noise_factor"]

_NORMAL = 1.959964  # the normal's quantile of a 95 % interval
# degrees of freedom of a start's own prior (first_guess.py): it is never known less well
_LEAST = 3.0
_LARGEST = 10.0  # of the variance of log σ²: a factor of five in σ either way, once
_NODES = 400  # of the mixture over log σ²
_BOUND = 1.644854  # the normal's quantile of an upper 95 % bound
_MANY = 1000.0  # beyond it the normal's quantile is t's, to half a per mille


def degrees_of_freedom(learned: Learned | None) -> float:
    """ν of the variance away from the path; infinite where θ is not learned.

    Close to the path v is s²/ℓ² times the square of the distance, by the slope that the field may
    have across it: g = (−2, 1) of (log ℓ, log s²). Farther off it is s² alone, which is known as
    well or better once a few lengthscales have been driven.
    """
    if learned is None or learned.covariance is None:
        return math.inf

    slope = torch.zeros(len(learned.covariance), dtype=torch.float64)
    slope[0], slope[1] = -2.0, 1.0
    spread = float(slope @ learned.covariance @ slope)
    return max(_LEAST, 2.0 / spread) if spread > 0.0 else math.inf


def interval_factor(degrees: float) -> float:
    """(t/1.96)², the factor of a variance with ν degrees of freedom for its 95 % interval."""
    return 1.0 if degrees > _MANY else (student_t_95(degrees) / _NORMAL) ** 2


def noise_factor(learned: Learned | None) -> float:
    """(q/1.96)², the factor of the noise variance for its 95 % interval; 1 where it is given."""
    if learned is None or learned.covariance is None:
        return 1.0
    variance = min(float(learned.covariance[2, 2]), _LARGEST)
    if variance <= 0.0:
        return 1.0
    return _mixture_factor(round(variance, 2), round(_log_of_total(learned), 1))


def _log_of_total(learned: Learned) -> float:
    """log T/σ², T being the upper 95 % bound of the variance of values."""
    signal, noise = learned.theta.signal_stddev**2, learned.theta.noise_stddev**2
    slope = torch.tensor([signal, noise], dtype=torch.float64) / (signal + noise)
    spread = float(slope @ learned.covariance[1:3, 1:3] @ slope)
    return math.log1p(signal / noise) + _BOUND * math.sqrt(max(spread, 0.0))


@lru_cache(maxsize=1024)
def _mixture_factor(variance: float, most: float) -> float:
    """(q/1.96)² of a normal whose log variance is normal with that variance, and at most `most`."""
    # the middle of each of _NODES slices of equal probability below `most`
    below = 0.5 * math.erfc(-most / math.sqrt(2.0 * max(variance, 1e-12)))
    middles = below * (torch.arange(_NODES, dtype=torch.float64) + 0.5) / _NODES
    logs = math.sqrt(variance) * torch.special.ndtri(middles)
    parts = [(1.0 / _NODES, scale) for scale in torch.exp(-0.5 * logs).tolist()]

    low, high = 1e-3 * _NORMAL, _NORMAL * math.exp(2.0 * math.sqrt(variance))
    while high - low > 1e-6 * high:
        q = 0.5 * (low + high)
        beyond = sum(w * math.erfc(q * s / math.sqrt(2.0)) for w, s in parts)
        low, high = (q, high) if beyond > 0.05 else (low, q)
    return (low / _NORMAL) ** 2
