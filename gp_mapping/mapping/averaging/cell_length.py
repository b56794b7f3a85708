"""How long a cell may be: as long as it takes the field's mean for its value with little error.

A map takes the mean over a cell of the length L for the field's value in the middle. With places
that have the standard deviation e = L/√12 along the way, this is wrong by the variance

    B(L) = E[(½ f(x + e) + ½ f(x − e) − f(x))²] = s² (3/2 − 2 ρ(e) + ½ ρ(2e))

of a field f of variance s² and correlation ρ: its root is .008 s where L is a fifth of the
lengthscale, and .09 s where L is two thirds of it. Of the white noise w/L is left in a cell. The
longest L with B(L) ≤ w/L is taken: shorter cells would cost more, and tell hardly more.

A field that is smooth over many metres needs no cells of `cell_length` either. There L is twice,
four times, … as long, as far as the same holds for a lengthscale that is known to be no shorter,

    ℓ₋ = ℓ exp(−2 √Var[log ℓ])

and as `cell_lengthscales` allows, by default a tenth of ℓ₋. Where a start is smooth and the field
then turns out five times rougher, a cell is half a lengthscale long until that is learned, and errs
by .05 s.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch

from gp_mapping.core.hyper.agreed import Learned
from gp_mapping.core.kernels import make_kernel

__all__ = ["least_lengthscale", "lengthened", "suitable_length"]

_STEP = math.sqrt(0.5)  # from one length that is tried to the next
_SHORTEST = 0.2  # lengthscales: there the root of B is .008 s, whatever the noise is
_SURE = 2.0  # standard deviations of log ℓ


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
    blur = _blur(tuple(lengths), kernel, lengthscale, signal)
    fits = [b <= white / length for b, length in zip(blur, lengths)]
    return lengths[fits.index(True)] if any(fits) else lengths[-1]


def lengthened(
    length: float, longest: float, kernel: str, lengthscale: float, signal: float, white: float
) -> float:
    """Length of a cell of a smooth field, m: `length` times 1, 2, 4, ….

    Args:
        length: that it has at least, m.
        longest: that it may have, m.
        kernel: name of the field's covariance function.
        lengthscale: of the field, m; rather too short than too long.
        signal: its variance s², squared SI.
        white: w, what averaging leaves of the white noise in a cell of 1 m, squared SI m.
    """
    count = math.floor(math.log2(longest / length) + 1e-9) if longest > length else 0
    lengths = [length * 2.0**k for k in range(1, count + 1)]
    if not lengths:
        return length
    blur = _blur(tuple(lengths), kernel, lengthscale, signal)
    return max([length, *(each for each, b in zip(lengths, blur) if b <= white / each)])


def least_lengthscale(learned: Learned | None) -> float:
    """ℓ₋, m; 0 where it is not known how well ℓ is."""
    if learned is None or learned.covariance is None:
        return 0.0
    spread = math.sqrt(max(float(learned.covariance[0, 0]), 0.0))
    return learned.theta.lengthscale * math.exp(-_SURE * spread)


@lru_cache(maxsize=16)  # asked with each cell, and other hyper-parameters come with few of them
def _blur(
    lengths: tuple[float, ...], kernel: str, lengthscale: float, signal: float
) -> list[float]:
    """B of each length, squared SI."""
    apart = torch.tensor(lengths, dtype=torch.float64)[:, None] / math.sqrt(12.0) / lengthscale
    near, far = make_kernel(kernel, 1.0, 1.0).correlation((apart * apart.new_tensor([1, 2])) ** 2).T
    return (signal * (1.5 - 2.0 * near + 0.5 * far)).tolist()
