"""How long the blocks of a slow sensor are best: long ones blur the field, short ones are noisy.

With blocks of the time Δ, a = exp(−Δ/τ), and a noise of one block of σ²/Δ, what they say has the
variance

    N = σ²/Δ · (1 + a²)/(1 − a)²,   and   B = E[(½ f(x − √v) + ½ f(x + √v) − f(x))²] ∝ v²

of taking a weighted mean of the field, of variance v along the way, for its value in the middle. Of
all lengths L the one with the smallest (N + B) L tells most of a metre.
"""

from __future__ import annotations

import math

import torch

from gp_mapping.core.kernels import make_kernel
from gp_mapping.mapping.response.posterior import Known
from gp_mapping.mapping.response.track import Track

__all__ = ["best_length", "blur"]

_SHARES = tuple(0.1 * 1.1**k for k in range(13))  # of a lengthscale: .1 to .31


def blur(kernel: str, lengthscale: float) -> float:
    """B/v² for blocks of a fifth of a lengthscale, in the field's variance, 1/m⁴."""
    variance = (lengthscale / 5) ** 2 / 6
    ends = torch.tensor([[0.0], [math.sqrt(variance)], [2 * math.sqrt(variance)]]).double()
    k = make_kernel(kernel, 1.0, lengthscale)(ends[:1], ends)[0]
    return float(1.5 * k[0] - 2.0 * k[1] + 0.5 * k[2]) / variance**2


def best_length(track: Track, known: Known, kernel: str) -> float:
    """Length of a block, m.

    Args:
        track: measurements of the sensor.
        known: of the time constant, from it.
        kernel: name of the field's covariance function.
    """
    elapsed = track.stamp.diff()
    inside = ~track.begins[1:] & (elapsed > 0)
    way = (track.x[1:] - track.x[:-1]).norm(dim=1)[inside]
    usual = float(elapsed[inside].median())
    speed = max(float((way / elapsed[inside]).median()), 1e-6 * known.lengthscale / usual)

    per_second = known.noise**2 * usual
    rough = blur(kernel, known.lengthscale)

    def variance(length: float) -> float:
        time = length / speed
        a = math.exp(-time / known.seconds)
        noise = per_second / time * (1.0 + a**2) / (1.0 - a) ** 2
        return (noise + rough * (length**2 / 6) ** 2) * length

    return min((share * known.lengthscale for share in _SHARES), key=variance)
