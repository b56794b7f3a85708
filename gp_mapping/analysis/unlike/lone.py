"""Which measurements of a piece of a test are gross errors: no field, and no poses, make them.

A field that is another now, and poses that lie off the map, make errors that go on along the way.
Errors e of a piece are predicted each from all others under

    e ~ N(0, s² (C + u² 1 1ᵀ + u² k(x, x′ | ℓ/2)))

k being Matérn-5/2, u the spread of e by its median, at least that of C, and s at least 1. An error
is lone where it is more than LONE of its standard deviations away. The worst is left out first, for
it spoils what its neighbours are predicted to be; the next is judged without it.
"""

from __future__ import annotations

import numpy as np
import torch

from gp_mapping.core.kernels import make_kernel

__all__ = ["lone_errors"]

_LONE = 6.0  # standard deviations: of thousands of normal errors none
_WIDTH = 0.5  # lengthscales, of what an error has in common with its neighbours
_ROW = 2  # as many in a row are gross errors; more of them are something that was driven through
_MOST = 0.2  # fraction of a piece: where more is lone the errors are not normal, and none is named
_MEDIAN = 1.4826  # standard deviations of a normal in a median of |z|


def lone_errors(
    error: np.ndarray, covariance: np.ndarray, x: np.ndarray, lengthscale: float
) -> np.ndarray:
    """Return which measurements are gross errors, (N,) bool.

    Args:
        error: (N, C), in order of time.
        covariance: C of each channel, (N, N).
        x: places, (N, 2) m.
        lengthscale: of the map, m.
    """
    n = len(error)
    none, lone = np.zeros(n, bool), np.zeros(n, bool)
    places = torch.from_numpy(x)
    common = 1.0 + make_kernel("matern52", 1.0, _WIDTH * lengthscale)(places, places).numpy()

    for _ in range(int(_MOST * n) + 1):
        kept = np.flatnonzero(~lone)
        e = error[kept]
        square = float(np.median(np.square(e - np.median(e, 0)))) * _MEDIAN**2
        square = max(square, float(np.diagonal(covariance).mean()))
        try:
            inverse = np.linalg.inv(
                covariance[np.ix_(kept, kept)] + square * common[np.ix_(kept, kept)]
            )
        except np.linalg.LinAlgError:  # by rounding: nothing is told then
            return none
        variance = 1.0 / np.diagonal(inverse)
        away = np.abs(inverse @ e).max(1) * np.sqrt(variance)
        scale = max(1.0, _MEDIAN * float(np.median(away)))
        worst = int(away.argmax())
        if not away[worst] > _LONE * scale:
            return _short(lone)
        lone[kept[worst]] = True
    return none


def _short(lone: np.ndarray) -> np.ndarray:
    """Return them without runs of more than `_ROW`."""
    ends = np.flatnonzero(np.diff(np.r_[False, lone, False]))
    out = lone.copy()
    for begin, end in ends.reshape(-1, 2):
        out[begin:end] = end - begin <= _ROW
    return out
