"""Expectations under a Gaussian that likelihoods need, to rounding rather than to a few digits.

Gauss–Hermite nodes spread out with the Gaussian, while a likelihood changes over a length of its
own: with a broad q(f) their error is percents. The trapezoid rule converges exponentially as soon
as its step resolves both.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

__all__ = ["expectation", "faddeeva", "gauss_hermite", "log_concave_integral", "nodes"]

_REACH = 6.5  # standard deviations on either side; what is beyond weighs 1e-10
_STEP = 0.6  # in units of the smaller of the standard deviation and the function's own length
_MOST = 400  # nodes
_HALVES = 16  # bisections of a reach: the limits are too far out by at most a 65 000th of it


def gauss_hermite(count: int) -> tuple[Tensor, Tensor]:
    """Gauss–Hermite rule: nodes ε and weights w with Σ w g(ε) = E g(ε), ε ~ N(0, 1).

    It is exact for polynomials of degree 2n − 1.

    Args:
        count: n.

    Returns:
        Nodes (n,) and weights (n,).

    Reference:
        Golub and Welsch 1969: from the eigenvectors of the Jacobi matrix.
    """
    off = torch.arange(1, count, dtype=torch.float64).sqrt()
    values, vectors = torch.linalg.eigh(torch.diag(off, 1) + torch.diag(off, -1))
    return values, vectors[0].square()


def nodes(variance: Tensor, width: float = 1.0) -> tuple[Tensor, Tensor]:
    """Trapezoid rule for E g(m + √v ε), ε ~ N(0, 1).

    Args:
        variance: v of all integrals, of any shape; the largest decides how many nodes there are.
        width: length over which g is smooth.

    Returns:
        Nodes ε (n,) and weights (n,).
    """
    ratio = (
        float(variance.detach().max().clamp_min(0.0).sqrt()) / width if variance.numel() else 1.0
    )
    half = min(_MOST // 2, math.ceil(_REACH * max(ratio, 1.0) / _STEP))
    epsilon = torch.linspace(
        -_REACH, _REACH, 2 * half + 1, dtype=torch.float64, device=variance.device
    )
    weights = torch.exp(-0.5 * epsilon.square())
    return epsilon, weights / weights.sum()


def expectation(function, mean: Tensor, variance: Tensor, width: float = 1.0) -> Tensor:
    """Expectation E g(f), f ~ N(mean, variance), by the trapezoid rule.

    Args:
        function: g, of (…, n) to (…, n).
        mean: (…,).
        variance: (…,).
        width: length over which g is smooth.

    Returns:
        (…,).
    """
    epsilon, weights = nodes(variance, width)
    f = mean[..., None] + variance.clamp_min(0.0).sqrt()[..., None] * epsilon
    return function(f) @ weights


def log_concave_integral(
    log_f, mode: Tensor, reach: Tensor, count: int = 400, drop: float = 40.0
) -> Tensor:
    """Logarithm of an integral, log ∫ e^{h(f)} df, of a concave h, wherever its mode lies.

    Nodes spread about a Gaussian's mean miss a product whose mode is elsewhere. Here the limits are
    where h has fallen by `drop` from its mode, found by bisection on either side; the trapezoid
    rule between them converges exponentially.

    Args:
        log_f: h, of (…, n) to (…, n).
        mode: (…,) where h is largest.
        reach: (…,) a distance from the mode at which h has fallen by at least `drop`, on both
            sides.
        count: nodes.
        drop: nats; e^−drop of the integrand is left out.

    Returns:
        (…,) the logarithm of the integral.
    """
    top, ends = log_f(mode[..., None]), []

    # the limit on each side is the outer end of its last bracket
    for side in (-1.0, 1.0):
        near, far = torch.zeros_like(reach), reach.clone()
        for _ in range(_HALVES):
            middle = 0.5 * (near + far)
            inside = log_f((mode + side * middle)[..., None])[..., 0] > top[..., 0] - drop
            near, far = torch.where(inside, middle, near), torch.where(inside, far, middle)
        ends.append(mode + side * far)

    fraction = torch.linspace(0.0, 1.0, count, dtype=mode.dtype, device=mode.device)
    width = ends[1] - ends[0]
    f = ends[0][..., None] + width[..., None] * fraction
    return torch.logsumexp(log_f(f), -1) + (width / (count - 1)).log()


@lru_cache(maxsize=1)
def _weideman(count: int = 48) -> tuple[float, tuple[float, ...]]:
    """L and the coefficients, highest power first, of Weideman (1994), SIAM J. Numer. Anal. 31."""
    length = math.sqrt(count / math.sqrt(2.0))
    angle = math.pi * torch.arange(-2 * count + 1, 2 * count, dtype=torch.float64) / (2 * count)
    t = length * torch.tan(angle / 2)
    f = torch.cat(
        [torch.zeros(1, dtype=torch.float64), torch.exp(-t.square()) * (length**2 + t.square())]
    )
    a = torch.fft.fft(torch.fft.fftshift(f)).real / (4 * count)
    return length, tuple(a[1 : count + 1].flip(0).tolist())


def faddeeva(z: Tensor) -> Tensor:
    """Faddeeva function w(z) = exp(−z²) erfc(−iz) of complex z with Im z ≥ 0.

    It is the function of the Voigt profile; the relative error is below 1e-12.
    """
    length, coefficients = _weideman()
    ratio = (length + 1j * z) / (length - 1j * z)
    polynomial = torch.zeros_like(ratio)
    for a in coefficients:
        polynomial = polynomial * ratio + a
    return 2 * polynomial / (length - 1j * z) ** 2 + (1 / math.sqrt(math.pi)) / (length - 1j * z)
