"""K_uu of a stationary kernel on a lattice, times a vector, by FFT: a corner of a circulant matrix.

The torus is as long as the lattice and the kernel's reach, and holds the sum of all the kernel's
images there: by Poisson's formula its spectrum is that of the kernel, aliased, and positive; that
of the usual embedding of least size is not.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.kernels.stationary import Stationary

__all__ = ["KernelGrid", "fast_length", "kernel_reach"]

_NEGLIGIBLE = 1e-8  # correlation beyond which the torus may close


def fast_length(least: int) -> int:
    """The smallest even number 2^a 3^b 5^c that is at least `least`: a length of fast FFTs."""
    best, five = 1 << max(1, (least - 1).bit_length()), 1

    while five < best:
        three = five
        while three < best:
            two = 2
            while three * two < least:
                two *= 2
            best = min(best, three * two)
            three *= 3
        five *= 5

    return best


def kernel_reach(kernel: Stationary) -> float:
    """Distance (m) beyond which the correlation is below 1e-8, at most 39.75 lengthscales."""
    # in lengthscales; a correlation that never falls so low gets the last of these
    r = torch.arange(1.0, 40.0, 0.25, dtype=torch.float64)
    inside = (kernel.correlation(r.square()) > _NEGLIGIBLE).nonzero()
    return float(kernel.lengthscale) * float(
        r[int(inside[-1]) + 1] if int(inside[-1]) + 1 < len(r) else r[-1]
    )


class KernelGrid:
    """K_uu on a lattice, as the spectrum of a torus.

    Args:
        kernel: the stationary kernel.
        spacing: of the nodes, m.
        shape: (H, W) nodes.
        device: of all tensors.
    """

    def __init__(self, kernel: Stationary, spacing: float, shape: tuple[int, int], device):
        self.shape = tuple(shape)
        reach = int(kernel_reach(kernel) / spacing) + 1
        # so long that correlations around the torus are negligible
        self.torus = tuple(fast_length(n + reach) for n in shape)

        squares = []
        for length in self.torus:
            lag = torch.arange(length, dtype=torch.float64, device=device)
            squares.append(
                [(d * spacing / float(kernel.lengthscale)).square() for d in (lag, length - lag)]
            )

        # each lag and its image on the other side of the torus
        row = sum(
            kernel.correlation(a[:, None] + b[None, :]) for a in squares[0] for b in squares[1]
        )
        # positive but for rounding
        self.spectrum = torch.fft.rfft2(kernel.variance * row).real.clamp_min(0.0)

    def apply(self, p: Tensor) -> Tensor:
        """K p for p (C, H, W): (C, H, W)."""
        wide = torch.fft.irfft2(torch.fft.rfft2(p, s=self.torus) * self.spectrum, s=self.torus)
        return wide[..., : self.shape[0], : self.shape[1]]
