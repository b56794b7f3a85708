"""How well the values of a slow sensor tell its time constant and a dead time before it.

Gas that a pump draws through a hose comes d later, and the sensor follows it with τ:

    y(t) = ∫ exp(−s/τ)/τ f(x(t − d − s)) ds

To first order in the frequency both are one, τ + d; they differ by the second, τ²/2 against none,
which values tell where the field changes within τ of driving. The log evidence over u = (log τ, d)
is a parabola about its top, fitted by least squares to a grid of three by three:

    L(u) = L₀ + gᵀ(u − u₀) − ½ (u − u₀)ᵀ A (u − u₀),   Cov[u] = A⁻¹
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import NamedTuple

import torch

from gp_mapping.mapping.response.block_evidence import BlockEvidence
from gp_mapping.mapping.response.posterior import Known
from gp_mapping.mapping.response.track import Track

__all__ = ["KnownBoth", "known_both"]

_FIRST = 0.06, 0.03  # of log τ; and of the delay, in τ + d: beside the start
_LEAST = 0.02, 0.005  # between the rows of the grid
_ROUNDS = 4  # times that the grid is moved to the top of the parabola
_MOST = 3.0  # widths by which it is moved at most
_NEAR = 0.7  # widths from the middle of the grid in which a top is taken


class KnownBoth(NamedTuple):
    """What is known of a time constant and of a delay.

    Attributes:
        constant: of the time constant.
        delay: s.
        stddev: of the delay, s.
    """

    constant: Known
    delay: float
    stddev: float


def known_both(
    track: Track,
    kernel: str,
    seconds: float,
    delay: float,
    lengthscale: float,
    noise: float,
) -> Generator[None, None, KnownBoth]:
    """What the values say of τ and of the delay; yields after each evidence, O(N³).

    Args:
        track: at least ten rows with values of variance 1 or so.
        kernel: name of the field's covariance function.
        seconds: τ near the best, s.
        delay: near the best, s.
        lengthscale: near the best, m.
        noise: of a block near the best, in standard deviations of the field.
    """
    best = BlockEvidence(track, kernel, lengthscale, noise)
    usual = seconds + delay
    centre = torch.tensor([math.log(seconds), delay], dtype=torch.float64)
    widths = torch.tensor([_FIRST[0], _FIRST[1] * usual], dtype=torch.float64)
    least = torch.tensor([_LEAST[0], _LEAST[1] * usual], dtype=torch.float64)

    covariance = torch.diag(widths.square())
    for _ in range(_ROUNDS):
        grid = torch.cartesian_prod(*(torch.tensor([-1.0, 0.0, 1.0]).double(),) * 2)
        told = []
        for u in centre + grid * widths:
            weights = best.of_constant(math.exp(float(u[0])), max(float(u[1]), 0.0))
            told.append((yield from best.evidence(weights)))
        slope, curved = _parabola(grid, torch.tensor(told, dtype=torch.float64))
        curves, turned = torch.linalg.eigh(curved)
        along = turned.mT @ slope
        # where it rises, or hardly falls, the way is up the slope
        step = turned @ (along / curves.abs().clamp_min(0.1)).clamp(-_MOST, _MOST)
        covariance = turned @ torch.diag(1.0 / curves.clamp_min(1e-2)) @ turned.mT
        covariance = covariance * widths[:, None] * widths
        centre = centre + step * widths
        centre[1] = centre[1].clamp_min(0.0)
        widths = (covariance.inverse().diagonal().rsqrt()).clamp(min=least)
        if bool((curves > 0.0).all()) and float(step.abs().max()) < _NEAR:
            break

    seconds, delay = math.exp(float(centre[0])), float(centre[1])
    # so that length, noise and signal go with what is taken
    yield from best.evidence(best.of_constant(seconds, delay))
    length, noise = (math.exp(value) for value in best.vertex)
    deviations = covariance.diagonal().sqrt().tolist()
    return KnownBoth(
        Known(seconds, deviations[0], length, noise, best.signal), delay, deviations[1]
    )


def _parabola(grid: torch.Tensor, told: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Slope g (2,) and curvature A (2, 2) of the parabola that fits best about 0.

    Args:
        grid: places (N, 2).
        told: values there (N,); what is not finite counts as far lower.
    """
    top = told.max()
    told = torch.where(torch.isfinite(told), told, top - 100.0) - top
    u, w = grid.mT
    columns = torch.stack([torch.ones_like(u), u, w, u * u, u * w, w * w], 1)
    # those near the top count more
    weight = (told / 8.0).exp().clamp_min(1e-3).sqrt()[:, None]
    c = torch.linalg.lstsq(columns * weight, told[:, None] * weight).solution[:, 0]
    return c[1:3], -torch.stack([torch.stack([2 * c[3], c[4]]), torch.stack([c[4], 2 * c[5]])])
