"""Synthetic samples for cost and drawing, where a recording is not needed: a smooth random field and a robot in it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_mapping.core.kernels.stationary import make_kernel
from gp_mapping.core.sparse.basis import greedy_inputs
from gp_mapping.core.types import Samples

__all__ = ["RandomField", "fixed_inputs", "lawnmower", "scattered"]

LENGTHSCALE = 0.45  # m
STEP = 0.0036  # m a sample: 0.18 m/s at 50 Hz, as in the recordings


class RandomField:
    """μT-sized waves with the spectrum of a Matérn-5/2 process of that lengthscale, 45 µT on the average; seeded."""

    def __init__(self, seed: int, lengthscale: float = LENGTHSCALE, waves: int = 200):
        g = torch.Generator().manual_seed(seed)
        normal = torch.randn(waves, 2, dtype=torch.float64, generator=g)
        # Student-t frequencies with 5 degrees of freedom are Matérn-5/2's spectrum
        chi = torch.randn(waves, 5, dtype=torch.float64, generator=g).square().sum(1, keepdim=True)
        self.frequency = normal * (5.0 / chi).sqrt() / lengthscale
        self.phase = 2 * math.pi * torch.rand(waves, dtype=torch.float64, generator=g)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, 1) tesla at x (N, 2) metres."""
        waves = torch.cos(x @ self.frequency.mT + self.phase)
        return 45e-6 + 12e-6 * (2.0 / waves.shape[1]) ** 0.5 * waves.sum(1, keepdim=True)

    def measure(self, x: Tensor, generator: torch.Generator, start: float = 0.0) -> Samples:
        """Samples at x with white noise of 0.5 µT, stamped at 50 Hz."""
        noise = 0.5e-6 * torch.randn(len(x), 1, dtype=torch.float64, generator=generator)
        return Samples(
            x, self(x) + noise, stamp=start + 0.02 * torch.arange(len(x), dtype=torch.float64)
        )


def scattered(field: RandomField, count: int, side: float, generator: torch.Generator) -> Samples:
    """Uniformly over a square of that side, in metres."""
    return field.measure(
        side * torch.rand(count, 2, dtype=torch.float64, generator=generator), generator
    )


def lawnmower(low: float, high: float, spacing: float, step: float = STEP) -> Tensor:
    """(N, 2) positions on lanes along x over the square [low, high]², every `step` metres, first to last corner."""
    lanes = max(1, round((high - low) / spacing))
    corners = [[low, low]]
    for lane in range(lanes + 1):
        y = low + (high - low) * lane / lanes
        ends = (low, high) if lane % 2 == 0 else (high, low)
        corners += [[ends[0], y], [ends[1], y]]
    legs = []
    for a, b in zip(torch.tensor(corners[:-1]).double(), torch.tensor(corners[1:]).double()):
        n = round(float((b - a).norm()) / step)
        legs.append(a + (b - a) * torch.arange(n, dtype=torch.float64)[:, None] / max(n, 1))
    return torch.cat([*legs, torch.tensor(corners[-1:]).double()])


def side_for(inducing: int) -> float:
    """The side of a square in which that many inducing inputs lie about half a lengthscale apart, metres."""
    return 0.55 * LENGTHSCALE * inducing**0.5


def fixed_inputs(inducing: int, generator: torch.Generator, device: str = "cpu") -> Tensor:
    """(M, 2) inputs that pivoted Cholesky picks, on a device, from random positions in the square of `side_for`."""
    x = side_for(inducing) * torch.rand(4 * inducing, 2, dtype=torch.float64, generator=generator)
    x = x.to(device)
    return x[greedy_inputs(make_kernel("matern52", 1.0, LENGTHSCALE), x, 0.0, inducing)].cpu()
