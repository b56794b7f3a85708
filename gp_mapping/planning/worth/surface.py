"""The value of one measurement at every cell of a grid at once, by convolutions.

    Δ(x) = Σ_c w_c cov(c, x)² / (var(x) + σ²),   cov = k − q,  q = b_cᵀ b_x
    Σ_c w_c cov² = Σ w k² − 2 Σ w k q + Σ w q²
                 = (w ∗ k²)(x) − 2 Σ_j b_j(x) ((w b_j) ∗ k)(x) + b_xᵀ (Σ w b bᵀ) b_x

k depends on the difference of places alone, so on a grid the sums are convolutions; b has as many
rows R as the map has inducing inputs (`explained`). The cost is 3 G R² + R transforms of the padded
grid, for all G cells as candidates.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy import fft
from torch import Tensor

from gp_mapping.core.field_map import FieldMap
from gp_mapping.planning.acquisition import integrated_variance_reduction

__all__ = ["lattice", "variance_reduction_surface"]

_ROWS = 16  # features transformed together: time and memory alone


def lattice(origin, resolution: float, shape: tuple[int, int]) -> Tensor:
    """Return the centres of a grid's cells, row by row.

    Args:
        origin: lower left corner, m.
        resolution: m.
        shape: rows, columns.

    Returns:
        (H·W, 2) m.
    """
    height, width = shape
    xs = origin[0] + (torch.arange(width, dtype=torch.float64) + 0.5) * resolution
    ys = origin[1] + (torch.arange(height, dtype=torch.float64) + 0.5) * resolution
    return torch.stack([xs.repeat(height), ys.repeat_interleave(width)], 1)


@torch.no_grad()
def variance_reduction_surface(
    field: FieldMap, origin, resolution: float, weights: Tensor, noise_variance: float | None = None
) -> Tensor:
    """Return by how much one measurement in each cell lowers the variance over all cells.

    Args:
        field: any map; fast by convolutions where it has `explained`, otherwise cell by cell.
        origin: (2,) m, lower left corner of the grid.
        resolution: m.
        weights: (H, W) of the cells: their areas in m², 0 outside the survey area.
        noise_variance: σ², SI²; None takes the map's own.

    Returns:
        (H, W), SI² times the unit of the weights, at cells of weight 0, too.

    Raises:
        ValueError: σ² is not positive.

    Reference:
        Cohn, Neural network exploration using optimal experiment design, 1996, for Δ.
    """
    weights = torch.as_tensor(weights, dtype=torch.float64)
    x = lattice(origin, resolution, tuple(weights.shape))
    b = field.explained(x)

    if b is None:
        targets = weights.reshape(-1) > 0
        return integrated_variance_reduction(
            field, x, x[targets], weights.reshape(-1)[targets], noise_variance
        ).reshape(weights.shape)

    b, w = b.cpu().numpy(), weights.numpy()
    height, width = w.shape
    padded = [fft.next_fast_len(2 * n - 1, real=True) for n in w.shape]
    kernel = _kernel(field, origin, resolution, padded)

    def smoothed(values: np.ndarray, transform: np.ndarray) -> np.ndarray:
        """Return values ∗ kernel.

        Args:
            values: (…, H, W).
            transform: of the kernel, by rfft2 over the padded grid.

        Returns:
            (…, H, W).
        """
        spectrum = fft.rfft2(values, padded)
        spectrum *= transform
        return fft.irfft2(spectrum, padded, overwrite_x=True)[..., :height, :width]

    # The three terms of Σ w cov², in the order of the module's equation.
    total = smoothed(w, fft.rfft2(kernel**2))
    transform = fft.rfft2(kernel)
    features = b.reshape(-1, height, width)
    for start in range(0, len(features), _ROWS):
        part = features[start : start + _ROWS]
        total -= 2.0 * np.einsum("jhw,jhw->hw", part, smoothed(part * w, transform))

    gram = (b * w.reshape(-1)) @ b.T  # (R, R)
    total += np.einsum("jn,jn->n", b, gram @ b).reshape(height, width)

    variance = float(kernel[0, 0]) - np.einsum("jn,jn->n", b, b).reshape(height, width)
    noise = (
        float(field.predict(x[:1]).noise_variance.mean())
        if noise_variance is None
        else float(noise_variance)
    )
    if not noise > 0:
        raise ValueError(
            f"noise_variance is {noise}, expected a positive variance in squared SI units"
        )
    return torch.from_numpy(np.maximum(total, 0.0) / (np.maximum(variance, 0.0) + noise))


def _kernel(field: FieldMap, origin, resolution: float, padded: list[int]) -> np.ndarray:
    """Return k of every difference of two cells.

    Negative differences are wrapped around, where a Fourier transform expects them.
    """
    rows, columns = (np.fft.fftfreq(n, 1.0 / n) for n in padded)
    offsets = np.stack(np.meshgrid(columns, rows), -1).reshape(-1, 2) * resolution
    here = torch.as_tensor(origin, dtype=torch.float64).reshape(1, 2)
    return (
        field.prior_covariance(here, here + torch.from_numpy(offsets)).cpu().numpy().reshape(padded)
    )
