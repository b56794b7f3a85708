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

    # arrays where the map is: of torch on a card, of numpy on a processor
    arrays, w = (_Numpy, weights.numpy()) if b.device.type == "cpu" else (_Torch, weights.to(b))
    b = arrays.of(b)
    height, width = w.shape
    padded = [fft.next_fast_len(2 * n - 1, real=True) for n in w.shape]
    kernel = arrays.of(_kernel(field, origin, resolution, padded))

    def smoothed(values, transform):
        """Return values ∗ kernel.

        Args:
            values: array (…, H, W).
            transform: of the kernel, by forward over the padded grid.

        Returns:
            (…, H, W).
        """
        spectrum = arrays.forward(values, padded)
        spectrum *= transform
        return arrays.backward(spectrum, padded)[..., :height, :width]

    # The three terms of Σ w cov², in the order of the module's equation.
    total = smoothed(w, arrays.forward(kernel**2, padded))
    transform = arrays.forward(kernel, padded)
    features = b.reshape(-1, height, width)
    for start in range(0, len(features), _ROWS):
        part = features[start : start + _ROWS]
        total -= 2.0 * arrays.einsum("jhw,jhw->hw", part, smoothed(part * w, transform))

    gram = (b * w.reshape(-1)) @ b.T  # (R, R)
    total += arrays.einsum("jn,jn->n", b, gram @ b).reshape(height, width)

    variance = float(kernel[0, 0]) - arrays.einsum("jn,jn->n", b, b).reshape(height, width)
    noise = (
        float(field.predict(x[:1]).noise_variance.mean())
        if noise_variance is None
        else float(noise_variance)
    )
    if not noise > 0:
        raise ValueError(
            f"noise_variance is {noise}, expected a positive variance in squared SI units"
        )
    total, variance = (torch.as_tensor(part).clamp_min(0.0) for part in (total, variance))
    return (total / (variance + noise)).cpu()


class _Numpy:
    """Arrays on a processor, where scipy's transforms are the faster ones."""

    einsum = staticmethod(np.einsum)

    @staticmethod
    def of(values: Tensor) -> np.ndarray:
        """A tensor as such an array."""
        return values.numpy()

    @staticmethod
    def forward(values: np.ndarray, padded: list[int]) -> np.ndarray:
        """Real transform over a padded grid."""
        return fft.rfft2(values, padded)

    @staticmethod
    def backward(spectrum: np.ndarray, padded: list[int]) -> np.ndarray:
        """Its inverse; the spectrum may be overwritten."""
        return fft.irfft2(spectrum, padded, overwrite_x=True)


class _Torch:
    """Arrays on a card; as of `_Numpy`."""

    einsum = staticmethod(torch.einsum)

    @staticmethod
    def of(values: Tensor) -> Tensor:
        """The tensor itself."""
        return values

    @staticmethod
    def forward(values: Tensor, padded: list[int]) -> Tensor:
        """Real transform over a padded grid."""
        return torch.fft.rfft2(values, s=padded)

    @staticmethod
    def backward(spectrum: Tensor, padded: list[int]) -> Tensor:
        """Its inverse."""
        return torch.fft.irfft2(spectrum, s=padded)


def _kernel(field: FieldMap, origin, resolution: float, padded: list[int]) -> Tensor:
    """Return k of every difference of two cells, where the map is.

    Negative differences are wrapped around, where a Fourier transform expects them.
    """
    rows, columns = (np.fft.fftfreq(n, 1.0 / n) for n in padded)
    offsets = np.stack(np.meshgrid(columns, rows), -1).reshape(-1, 2) * resolution
    here = torch.as_tensor(origin, dtype=torch.float64).reshape(1, 2)
    return field.prior_covariance(here, here + torch.from_numpy(offsets)).reshape(padded)
