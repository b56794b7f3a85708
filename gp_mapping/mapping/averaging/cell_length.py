"""How long a cell may be: as long as it takes the field's mean for its value with little error.

A map takes the mean over a cell of the length L for the field's value in the middle. With places
that have the standard deviation e = L/√12 along the way, this is wrong by the variance

    B(L) = E[(½ f(x + e) + ½ f(x − e) − f(x))²] = s² (3/2 − 2 ρ(e) + ½ ρ(2e))

of a field f of variance s² and correlation ρ: its root is .008 s where L is a fifth of the
lengthscale, and .09 s where L is two thirds of it. Of the white noise w/L is left in a cell. The
longest L with B(L) ≤ w/L is taken: shorter cells would cost more, and tell hardly more.
"""

from __future__ import annotations

import math

import torch

from gp_mapping.core.kernels import make_kernel

__all__ = ["suitable_length"]

_STEP = math.sqrt(0.5)  # from one length that is tried to the next
_SHORTEST = 0.2  # lengthscales: there the root of B is .008 s, whatever the noise is


def suitable_length(
    longest: float, kernel: str, lengthscale: float, signal: float, white: float
) -> float:
    """Length of a cell, m.

    Args:
        longest: that it may have, m.
        kernel: name of the field's covariance function.
        lengthscale: of the field, m.
        signal: its variance s², squared SI.
        white: w, what averaging leaves of the white noise in a cell of 1 m, squared SI m.
    """
    shortest = _SHORTEST * lengthscale
    if longest <= shortest:
        return longest

    count = 1 + math.ceil(math.log(shortest / longest) / math.log(_STEP))
    lengths = [max(longest * _STEP**k, shortest) for k in range(count)]
    apart = torch.tensor(lengths, dtype=torch.float64)[:, None] / math.sqrt(12.0) / lengthscale
    near, far = make_kernel(kernel, 1.0, 1.0).correlation((apart * apart.new_tensor([1, 2])) ** 2).T
    blur = signal * (1.5 - 2.0 * near + 0.5 * far)
    fits = [b <= white / length for b, length in zip(blur.tolist(), lengths)]
    return lengths[fits.index(True)] if any(fits) else lengths[-1]
