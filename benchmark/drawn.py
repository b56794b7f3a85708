"""Fields drawn from a Gaussian process, drives in them, and what a map and the exact GP say of other places there."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from gp_mapping.core.kernels import make_kernel
from gp_mapping.core.types import Samples
from gp_mapping.mapping.session import MapSession

__all__ = ["DrawnField", "ProcessField", "Scores", "exact_scores", "lanes", "scores"]

_EXACT = 1500  # measurements of a drive that the exact GP takes, evenly chosen


class DrawnField:
    """A draw of a Matérn-5/2 process by random Fourier features: the spectrum is a Student-t with 5 degrees of freedom.

    Few waves have no tail: where noise is a hundredth of the field, some hundred waves look smoother than the process.

    length: m.  mean, spread: in the unit of the values.  least: where the field is lower, it has this value.
    """

    def __init__(
        self,
        length: float,
        seed: int,
        mean: float = 0.0,
        spread: float = 1.0,
        least: float | None = None,
        waves: int = 3000,
    ):
        g = torch.Generator().manual_seed(seed)
        normal = torch.randn(waves, 2, dtype=torch.float64, generator=g)
        chi = torch.randn(waves, 5, dtype=torch.float64, generator=g).square().sum(1, keepdim=True)
        self.frequency = normal * (5.0 / chi).sqrt() / length
        self.phase = 2 * math.pi * torch.rand(waves, dtype=torch.float64, generator=g)
        self.height = (
            spread * (2.0 / waves) ** 0.5 * torch.randn(waves, dtype=torch.float64, generator=g)
        )
        self.mean, self.least = mean, least

    def __call__(self, x: Tensor) -> Tensor:
        """(N, 1) values at x (N, 2) metres."""
        values = self.mean + torch.cos(x @ self.frequency.mT + self.phase) @ self.height[:, None]
        return values if self.least is None else values.clamp_min(self.least)


class ProcessField:
    """A draw of a Matérn-5/2 process whose tail is right: waves at all scales, each with its share of the power.

    The radius r of the spectrum has the distribution F(r) = 1 − (1 + r²ℓ²/5)^(−5/2). Waves drawn from it leave the few
    per mille beyond 10/ℓ to chance, and data with little noise tell; here every ring in log r has as many waves as
    another, with heights N(0, F's share of the ring), so that any number of waves is a Gaussian process.

    length: m.  mean, spread: in the unit of the values.
    """

    def __init__(
        self,
        length: float,
        seed: int,
        mean: float = 0.0,
        spread: float = 1.0,
        rings: int = 80,
        waves: int = 25,
    ):
        g = torch.Generator().manual_seed(seed)
        edges = torch.cat([torch.zeros(1), torch.logspace(-1.0, 2.5, rings)]).double()  # of r ℓ
        below = 1.0 - (1.0 + edges.square() / 5.0).pow(-2.5)
        share = torch.cat([below[1:-1], torch.ones(1)]) - below[:-1]
        inside = torch.rand(rings, waves, dtype=torch.float64, generator=g)
        low, high = edges[:-1, None], edges[1:, None]
        radius = (low.square() + inside * (high.square() - low.square())).sqrt() / length
        turn = torch.rand(rings, 1, dtype=torch.float64, generator=g) + torch.arange(waves) / waves
        angle = math.pi * turn  # half a turn is all there is
        self.frequency = torch.stack([radius * angle.cos(), radius * angle.sin()], -1).reshape(
            -1, 2
        )
        self.height = (
            spread
            * (share / waves).sqrt()[:, None, None]
            * torch.randn(rings, waves, 2, dtype=torch.float64, generator=g)
        ).reshape(-1, 2)
        self.mean = mean

    def __call__(self, x: Tensor) -> Tensor:
        """(N, 1) values at x (N, 2) metres."""
        phase = x @ self.frequency.mT
        return self.mean + phase.cos() @ self.height[:, :1] + phase.sin() @ self.height[:, 1:]


def lanes(width: float, depth: float, lane: float, step: float) -> Tensor:
    """(N, 2) places every `step` metres along lanes in x, `lane` apart, over width × depth metres."""
    corners = []
    for k in range(round(depth / lane) + 1):
        ends = (0.0, width) if k % 2 == 0 else (width, 0.0)
        corners += [[ends[0], k * lane], [ends[1], k * lane]]
    ends = torch.tensor(corners, dtype=torch.float64)
    along = torch.cat(
        [torch.zeros(1, dtype=torch.float64), (ends[1:] - ends[:-1]).norm(dim=1).cumsum(0)]
    )
    at = torch.arange(0.0, float(along[-1]), step, dtype=torch.float64)
    leg = (torch.searchsorted(along, at, right=True) - 1).clamp(0, len(ends) - 2)
    share = ((at - along[leg]) / (along[leg + 1] - along[leg]))[:, None]
    return ends[leg] + share * (ends[leg + 1] - ends[leg])


class Scores(NamedTuple):
    """RMSE of the field, in its unit; coverage of 95 % intervals and mean NLPD of new measurements."""

    rmse: float
    coverage: float
    nlpd: float


def _scored(mean: Tensor, variance: Tensor, truth: Tensor, fresh: Tensor) -> Scores:
    square = (fresh - mean).square() / variance
    nlpd = 0.5 * (2 * math.pi * variance).log() + 0.5 * square
    return Scores(
        float((mean - truth).square().mean().sqrt()),
        float((square <= 1.96**2).double().mean()),
        float(nlpd.mean()),
    )


def scores(session: MapSession, x: Tensor, field, fresh: Tensor) -> Scores:
    """Of a map at x (N, 2): against the field, and against new measurements `fresh` (N, 1)."""
    told = session.predict(x)
    return _scored(told.mean, told.measurement_variance, field(x), fresh)


def exact_scores(
    drive: Samples, length: float, spread: float, noise: float, x: Tensor, field, fresh: Tensor
) -> Scores:
    """Of the exact GP on the drive's measurements with these hyper-parameters, the constant unknown."""
    step = max(1, math.ceil(len(drive) / _EXACT))
    places, y = drive.x[::step], drive.y[::step]
    centre, level = y.mean(), 100.0 * spread**2
    kernel = make_kernel("matern52", spread**2, length)
    noisy = (
        kernel(places, places)
        + level
        + noise**2 / step * torch.eye(len(places), dtype=torch.float64)
    )
    factor, cross = torch.linalg.cholesky(noisy), kernel(places, x) + level
    half = torch.linalg.solve_triangular(factor, cross, upper=False)
    mean = centre + half.mT @ torch.linalg.solve_triangular(factor, y - centre, upper=False)
    variance = (spread**2 + level - half.square().sum(0) + noise**2)[:, None]
    return _scored(mean, variance, field(x), fresh)
