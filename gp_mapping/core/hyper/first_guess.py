"""Where hyper-parameters start: the evidence of a stream's first cells on a coarse grid.

    p(ℓ, τ | y) ∝ ∫ N(y; c1, s²(R(ℓ) + τ²I)) dc

Nothing is known beforehand of the constant c; of s² that it is about the values' own spread, and it
is at its best for each (ℓ, τ). The starts are the means of log ℓ, log s and log σ = log τs under
these weights: with a few cells a broad guess between the spacing of cells and the extent of the
path, with a few lanes nearly the mode. It is a start, and the median of a weak prior; learning goes
on from there.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from gp_mapping.core.kernels import make_kernel

__all__ = ["SMOOTHNESS", "FirstGuess", "first_guess", "likeliest_kernel", "robust_stddev"]

# kernels that differ in how smooth the field is, in order of it
SMOOTHNESS = ("matern32", "matern52", "matern72", "matern92")

_LENGTHS, _LONGEST = 12, 2.0  # lengthscales of the grid; the longest, in extents of the path
_RATIOS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  # τ of the grid
# degrees of freedom of a scaled inverse χ² prior of s², about the values' own spread
_FREEDOM = 3.0
_BEYOND = 5.0  # robust standard deviations at which a value is cut: one outlier is no field
_MOST = 160  # cells that are used; of more, an even choice
# the finer grid on which kernels are compared: ℓ up to that factor from the start, and more τ, for
# the smoother a kernel, the smaller the noise beside which it is told
_AROUND, _LENGTHS_AROUND, _RATIOS_AROUND = 3.0, 7, 15
_ROUNDED = 1e-6  # nats that rounding makes of equal evidences
# sizes of the values: a spread below the first is rounding of float64, as means of equal values
# have it, and taken for the second; a counter at 1e9 whose field varies by 1 has none
_ROUNDING, _CONSTANT = 1e-13, 1e-5
_UNSEEN = 0.1  # spread in sizes of the values, where fewer than _FEW values show none
_FEW = 4
# b of robust_stddev by the number of values; of more it is n/(n − .8)
_FEW_VALUES = {
    1: 1.0,
    2: 1.196,
    3: 1.495,
    4: 1.363,
    5: 1.206,
    6: 1.200,
    7: 1.140,
    8: 1.129,
    9: 1.107,
}


class FirstGuess(NamedTuple):
    """Starts of the hyper-parameters.

    Attributes:
        lengthscale: m.
        signal: standard deviation, in the unit of the values.
        noise: standard deviation, in the unit of the values.
        centre: (C,) in the unit of the values.
    """

    lengthscale: float
    signal: float
    noise: float
    centre: list[float]


def robust_stddev(y: Tensor) -> Tensor:
    """1.4826 b × the median distance of y (N, C) from the median: (C,).

    b makes it right for normal values of which there are few. The plain standard deviation where
    more than half of the values are equal.

    Reference: Croux and Rousseeuw 1992, Time-efficient algorithms for two highly robust estimators
    of scale (b).
    """
    n = len(y)
    b = _FEW_VALUES.get(n, n / (n - 0.8))
    typical = 1.4826 * b * (y - y.quantile(0.5, 0)).abs().quantile(0.5, 0)
    return torch.where(typical > 0, typical, y.std(0, correction=0))


def first_guess(x: Tensor, y: Tensor, kernel: str = "matern52", unit: float = 1.0) -> FirstGuess:
    """Starts from the first cells of a stream.

    Args:
        x: (N, D) positions, m.
        y: (N, C) values in any unit; channels share lengthscale, signal and noise.
        kernel: name of the covariance function.
        unit: spread of values that are all 0.

    Returns:
        The starts; from a single place those of the spread alone.
    """
    values = _standardised(x, y, unit)
    if values.extent <= 0.0:
        return FirstGuess(1.0, values.size, 0.3 * values.size, values.centre)

    # the grid: the kernel's eigenvectors serve all ratios τ of a lengthscale
    lengths = torch.logspace(
        math.log10(values.shortest),
        math.log10(_LONGEST * values.extent),
        _LENGTHS,
        dtype=torch.float64,
    )
    ratios = torch.tensor(_RATIOS, dtype=torch.float64)
    score, signal = _on_grid(values, kernel, lengths, ratios)

    logs = torch.stack(
        [lengths.log()[:, None].expand_as(signal), signal.log(), (ratios * signal).log()]
    )
    weights = torch.softmax(score.flatten(), 0)
    length, signal, noise = torch.exp(logs.flatten(1) @ weights).tolist()
    return FirstGuess(length, signal * values.size, noise * values.size, values.centre)


def likeliest_kernel(x: Tensor, y: Tensor, lengthscale: float, usual: str = "matern52") -> str:
    """Return the kernel under which the first cells are likeliest: how smooth the field is.

        p(y | k) ∝ Σ_(ℓ, τ) p(y | ℓ, τ, k)

    on a grid of ℓ within a factor of three of the start's, since a smoother kernel has a shorter
    lengthscale for the same field, and of all τ. The kernels are equally likely beforehand.

    Args:
        x: (N, D) positions, m.
        y: (N, C) values in any unit.
        lengthscale: ℓ that the same cells start with, m.
        usual: of SMOOTHNESS, what it is where the cells tell nothing of it.

    Reference:
        Stein 1999, Interpolation of Spatial Data, 1.7 and 6: the smoothness is a parameter that
        data tell, and that decides predictions between them.
    """
    values = _standardised(x, y, 1.0)
    if values.extent <= 0.0:
        return usual
    # a value that is cut is a kink, which only a rough field has: such cells tell nothing here
    values = values._replace(x=values.x[values.whole], inner=values.inner[values.whole])
    ends = math.log10(lengthscale / _AROUND), math.log10(lengthscale * _AROUND)
    lengths = torch.logspace(*ends, _LENGTHS_AROUND, dtype=torch.float64)
    ratios = torch.logspace(-3.0, 0.5, _RATIOS_AROUND, dtype=torch.float64)
    scores = [
        float(torch.logsumexp(_on_grid(values, kernel, lengths, ratios)[0].flatten(), 0))
        for kernel in SMOOTHNESS
    ]
    likeliest = SMOOTHNESS[scores.index(max(scores))]
    # of places that are one, or too far apart, all kernels say the same but for rounding
    told = max(scores) > scores[SMOOTHNESS.index(usual)] + _ROUNDED
    return likeliest if told else usual


class _Standardised(NamedTuple):
    """Values in units of their size, outliers cut, and how far their places lie apart.

    Attributes:
        x: (N, D) m.
        inner: (N, C).
        size: of the values, in their unit.
        centre: (C,) in their unit.
        shortest: m, usual distance of two that follow each other.
        extent: m; 0: a single place, or values that show no field.
        whole: (N,) bool, of which no value was cut.
    """

    x: Tensor
    inner: Tensor
    size: float
    centre: list[float]
    shortest: float
    extent: float
    whole: Tensor


def _standardised(x: Tensor, y: Tensor, unit: float) -> _Standardised:
    """Values for the grid, at most _MOST of them.

    Args:
        x: (N, D) positions, m.
        y: (N, C) values in any unit.
        unit: spread of values that are all 0.
    """
    if len(x) > _MOST:
        even = torch.linspace(0, len(x) - 1, _MOST, dtype=torch.float64).round().long()
        x, y = x[even], y[even]

    centre, spread = y.median(0).values, robust_stddev(y)

    if len(x) < _FEW or float(spread.max()) == 0.0:
        largest = float(y.abs().max())
        size = max(_UNSEEN * largest, 3.0 * float(spread.max())) if largest > 0 else unit
        every = torch.ones(len(x), dtype=torch.bool)
        return _Standardised(x, y, size, centre.tolist(), 0.0, 0.0, every)

    # values in units of their size, outliers cut
    limit = _BEYOND * spread
    inner = torch.minimum(torch.maximum(y - centre, -limit), limit)
    whole = ((y - centre).abs() <= limit).all(1)
    size, largest = float(spread.square().mean().sqrt()), float(y.abs().max())
    if size < _ROUNDING * largest:
        size = _CONSTANT * largest
    size = max(size, 1e-300)

    extent = float((x.amax(0) - x.amin(0)).norm())
    steps = (x[1:] - x[:-1]).norm(dim=1)
    steps = steps[steps > 1e-6 * max(extent, 1e-300)]
    if extent <= 0.0 or not len(steps):
        return _Standardised(x, inner, size, centre.tolist(), 0.0, 0.0, whole)
    shortest = min(float(steps.median()), extent)
    return _Standardised(x, inner / size, size, centre.tolist(), shortest, extent, whole)


def _on_grid(
    values: _Standardised, kernel: str, lengths: Tensor, ratios: Tensor
) -> tuple[Tensor, Tensor]:
    """As `_evidence`: (L, T) each. The kernel's eigenvectors serve all τ of a lengthscale.

    Args:
        values: the cells.
        kernel: name of the covariance function.
        lengths: ℓ (L,), m.
        ratios: τ (T,).
    """
    x = values.x
    eigenvalues, vectors = torch.linalg.eigh(
        torch.stack([make_kernel(kernel, 1.0, length)(x, x) for length in lengths.tolist()])
    )  # (L, N), (L, N, N)
    spectra = eigenvalues.clamp_min(0.0)[:, None] + ratios.square()[:, None]
    return _evidence(spectra, vectors.mT @ values.inner, vectors.sum(1))


def _evidence(spectra: Tensor, turned: Tensor, ones: Tensor) -> tuple[Tensor, Tensor]:
    """log p(y | ℓ, τ) at the best s², and that s, with the constant integrated out: (L, T) each.

    Args:
        spectra: eigenvalues of R + τ²I (L, T, N), of L lengthscales and T ratios τ.
        turned: values in its eigenvectors (L, N, C).
        ones: the constant in its eigenvectors (L, N).
    """
    n, channels = turned.shape[1:]
    weights = spectra.reciprocal()
    constant_precision = (weights @ ones.square()[:, :, None])[:, :, 0]  # (L, T)
    levels = weights @ (ones[:, :, None] * turned) / constant_precision[:, :, None]  # (L, T, C)
    deviations = (
        (turned[:, None] - levels[:, :, None] * ones[:, None, :, None]).square().sum(3)
    )  # (L, T, N)

    square = (deviations * weights).sum(2) / channels
    variance = (square + _FREEDOM) / (n - 1 + _FREEDOM)

    likelihood = -0.5 * ((n - 1) * variance.log() + spectra.log().sum(2) + constant_precision.log())
    prior = -0.5 * _FREEDOM * (variance.log() + 1.0 / variance)
    return channels * (likelihood - 0.5 * square / variance) + prior, variance.sqrt()
