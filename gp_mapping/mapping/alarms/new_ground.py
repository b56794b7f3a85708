"""Does a run of errors contradict what was measured before, or lies it beside all of that?

A map knows a place that it has not measured from its lengthscale, which a flat field has made long
and its first narrow source has not shortened yet. So errors beside all earlier places may be a
detail that has always been there. They are a change only as far as an earlier measurement, which
the map fits, ought to have shown it. The errors e of the run, with a process of Matérn-5/2 for what
errs, foretell those of the map at each earlier place o, which are 0 ± σ:

    it was there before    0 ~ N(k(o, x) C⁻¹e, a² − k(o, x) C⁻¹k(x, o) + σ²)
    it was not             0 ~ N(0, a² + σ²)

with C = k(x, x) + diag(v + σ²), summed over sizes a and widths as probable as the errors of the run
say. Far from all earlier places they are alike: nothing tells then, and nothing has to have
changed. Errors that vary along the way within the distance of an earlier place foretell little
there, those of the same place all.
"""

from __future__ import annotations

import numpy as np

__all__ = ["contradiction"]

_SIZES = (0.5, 1.0, 2.0)  # of what errs, in root mean squares of the errors
_NARROWEST = 8  # times that the lengthscale is halved, at most: down to the way between two cells
_MOST = 48  # earlier places: the nearest ones


def contradiction(
    x: np.ndarray,
    error: np.ndarray,
    variance: np.ndarray,
    earlier: np.ndarray,
    noise: float,
    lengthscale: float,
    step: float,
) -> float:
    """Return by how many nats errors contradict the earlier place that they contradict most.

    Args:
        x: places (n, 2), m.
        error: measured less predicted there (n, C), SI.
        variance: v + σ² of each (n,), squared SI.
        earlier: places (m, 2) that the map has measured before, m.
        noise: σ², squared SI.
        lengthscale: of the map, m.
        step: usual way from cell to cell, m; nothing narrower is told.

    Returns:
        log p(0 | it was not there before) − log p(0 | it was); 0 where no place was measured.
    """
    if not len(earlier):
        return 0.0
    nearest = np.hypot(*(earlier[:, None] - x[None]).transpose(2, 0, 1)).min(1)
    earlier = earlier[np.argsort(nearest, kind="stable")[:_MOST]]

    n, places = len(x), np.concatenate([x, earlier])
    apart = np.hypot(*(places[:, None] - x[None]).transpose(2, 0, 1))
    widths = [lengthscale * 0.5**k for k in range(_NARROWEST)]
    widths = [width for width in widths if width >= step] or widths[:1]
    r = np.sqrt(5.0) * apart / np.array(widths)[:, None, None]
    sizes = np.square(_SIZES) * float(np.square(error).mean())
    kernels = sizes[:, None, None, None] * (1.0 + r + r * r / 3.0) * np.exp(-r)  # Matérn-5/2
    kernels = kernels.reshape(-1, len(places), n)
    prior = np.repeat(sizes, len(widths))[:, None] + noise

    half = np.linalg.cholesky(kernels[:, :n] + np.diag(variance))
    white = np.linalg.solve(half, np.broadcast_to(error, (len(half), *error.shape)))
    across = np.linalg.solve(half, kernels[:, n:].transpose(0, 2, 1))  # (k, n, m)
    channels = error.shape[1]
    log_det = 2.0 * np.log(np.diagonal(half, 0, 1, 2)).sum(1)
    told = -0.5 * (np.square(white).sum((1, 2)) + channels * log_det)[:, None]

    mean = across.transpose(0, 2, 1) @ white  # (k, m, C)
    known = prior - np.square(across).sum(1)
    there = -0.5 * (np.square(mean).sum(2) / known + channels * np.log(known))
    not_there = -0.5 * channels * np.log(prior)
    by_place = np.logaddexp.reduce(told + not_there) - np.logaddexp.reduce(told + there)
    return float(by_place.max())
