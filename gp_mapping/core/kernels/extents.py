"""Samples that average the field along a stretch of path: the covariance of such averages.

The mean of f over places with the standard deviation e along the direction u of travel is, to the
second order of e,

    f̄(x) = ½ [f(x + e u) + f(x − e u)] = f(x) + ½ e² ∂²f/∂u² + O(e⁴)

so that cov(f̄(x), f̄(x′)) is the mean of k over the four pairs of ends. It is a covariance whatever e
is, since it is that of sums of f. Of a wave with number κ both the average over a stretch of length
√12 e and this keep 1 − κ²e²/2 of the amplitude. Averages taken for values make a field look
smoother than it is: the evidence of cells of a sixth of a lengthscale finds one that is a tenth too
long, and less variance between lanes.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["ends", "matter", "mean_of_ends"]

# lengthscales below which an extent changes nothing: at most a hundredth of the power
# of waves with κℓ = 20,
# and few sensors see shorter ones above their noise
_NEGLIGIBLE = 0.005


def matter(extent: Tensor | None, length: float) -> bool:
    """Whether averages over these extents differ from values.

    Args:
        extent: (n,) m, or None.
        length: the lengthscale, m.
    """
    return extent is not None and bool((extent > _NEGLIGIBLE * length).any())


def ends(places: Tensor, velocity: Tensor, extent: Tensor) -> Tensor:
    """x + e u of all samples, then x − e u of all: (2n, D) m.

    Args:
        places: x (n, D), m.
        velocity: (n, D), m/s, whose direction is u; where it is 0, e is taken for 0.
        extent: e (n,), m.
    """
    speed = torch.linalg.vector_norm(velocity, dim=1, keepdim=True)
    half = velocity / speed.clamp_min(1e-300) * extent[:, None]
    return torch.cat([places + half, places - half])


def mean_of_ends(matrix: Tensor) -> Tensor:
    """Of a matrix between all ends (2n, 2n) the mean over the four pairs of ends: (n, n)."""
    n = len(matrix) // 2
    rows = matrix[:n] + matrix[n:]
    return 0.25 * (rows[:, :n] + rows[:, n:])
