"""For how many independent numbers a series counts whose errors persist."""

from __future__ import annotations

import numpy as np

__all__ = ["autocorrelation_time"]


def autocorrelation_time(values: np.ndarray) -> float:
    """Integrated autocorrelation time: the mean of n values is known as well as from n/τ alone.

        τ = 1 + 2 Σ_k ρ_k

    The sum of the autocorrelations ρ_k ends where those of two neighbouring lags are negative
    together, and no pair counts more than the one before it: beyond, chance decides (Geyer 1992,
    Practical Markov chain Monte Carlo, section 3.3).

    Args:
        values: (N,) in their order.

    Returns:
        τ, at least 1.
    """
    n = len(values)
    apart = values - values.mean() if n else values
    if n < 4 or not apart.any():
        return 1.0

    # padded with zeros, so that the end is not compared with the beginning
    spectrum = np.fft.rfft(apart, 2 * n)
    covariance = np.fft.irfft(spectrum * spectrum.conj(), 2 * n)[: n - n % 2]
    pairs = (covariance[::2] + covariance[1::2]) / covariance[0]
    positive = pairs[: int(np.argmax(pairs <= 0.0))] if (pairs <= 0.0).any() else pairs
    return max(1.0, 2.0 * float(np.minimum.accumulate(positive).sum()) - 1.0)
