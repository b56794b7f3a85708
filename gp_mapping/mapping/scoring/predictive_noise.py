"""Predictive noise variance from one-step-ahead residuals: the noise that made earlier predictions right."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["PredictiveNoise"]

_MEDIAN_OF_SQUARE = 0.4549  # of a standard normal


class PredictiveNoise:
    """σ² = argmin Σ [log(v + σ²) + r²/(v + σ²)] over a bounded window of scores (r, v): residual and latent variance.

    The sum runs over the scores whose latent variance is below four priors: elsewhere, as where a robot explores lane
    beside lane, a bad guess would pass for noise. Nor does it run over scores beyond five standard deviations, of a
    noise that the median says: gross errors, each cut at five of the σ in use, would make that σ grow without end.
    `prior` (variance) counts as `prior_count` scores with v = 0 and r² = prior: the first scores cannot mislead, and on
    a survey that never comes back, where no score counts, it is what is reported. σ² is never below `floor`: the white
    noise of one sample, which successive differences tell, is in every measurement.
    """

    def __init__(self, window: int, prior_count: float = 20.0):
        self.window, self.prior_count = window, prior_count
        self.residual_square = self.latent = torch.empty((0, 1), dtype=torch.float64)

    def __len__(self) -> int:
        return len(self.latent)

    def add(self, residual: Tensor, latent: Tensor) -> None:
        """residual: (N, C); latent: (N, C) variance; the oldest scores leave beyond the window."""
        for name, new in (("residual_square", residual.square().cpu()), ("latent", latent.cpu())):
            old = getattr(self, name)
            setattr(self, name, torch.cat([old if len(old) else old.new_empty((0, new.shape[1])), new])[-self.window:])

    def join(self, other: "PredictiveNoise") -> None:
        """Another's scores beside these; beyond the window each gives up the same share, its oldest."""
        both = len(self) + len(other)
        if not len(other):
            return
        keep = [n if both <= self.window else n * self.window // both for n in (len(self), len(other))]
        for name in ("residual_square", "latent"):
            mine, its = getattr(self, name), getattr(other, name)
            mine = mine if len(mine) else its[:0]
            setattr(self, name, torch.cat([mine[len(mine) - keep[0]:], its[len(its) - keep[1]:]]))

    def variances(self, prior: list[float], floor: float = 0.0) -> list[float]:
        """σ² of each component, (C,); prior: (C,), or (1,) for all of them; floor: the least of each."""
        count = self.latent.shape[1]
        each = prior * count if len(prior) == 1 else prior
        return [max(floor, self._variance(self.residual_square[:, c], self.latent[:, c], each[c]))
                for c in range(count)]

    def variance(self, prior: float) -> float:
        """σ² of all components together: that of their mean score."""
        return self._variance(self.residual_square.mean(1), self.latent.mean(1), prior)

    def _variance(self, square: Tensor, latent: Tensor, prior: float) -> float:
        """The best of a grid in log σ² over [1e-4, 1e4] prior, then golden section beside it. square, latent: (N,)"""
        if not len(latent):
            return prior
        known = latent <= 4.0 * prior
        if int(known.sum()) > self.prior_count:
            typical = square[known].median() / _MEDIAN_OF_SQUARE
            known &= square <= 25.0 * (latent + typical)
        r2, v, n0 = square[known] / prior, latent[known] / prior, self.prior_count

        def cost(logs: Tensor) -> Tensor:
            sigma = logs.exp()[:, None]
            total = v + sigma
            return (total.log() + r2 / total).sum(1) + n0 * (logs + 1.0 / sigma[:, 0])

        grid = torch.linspace(math.log(1e-4), math.log(1e4), 38, dtype=torch.float64)
        best = int(cost(grid).argmin())
        low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, len(grid) - 1)])
        ratio = (math.sqrt(5.0) - 1.0) / 2.0
        while high - low > 1e-4:
            inner = torch.tensor([high - ratio * (high - low), low + ratio * (high - low)], dtype=torch.float64)
            left, right = cost(inner).tolist()
            low, high = (low, float(inner[1])) if left < right else (float(inner[0]), high)
        return prior * math.exp(0.5 * (low + high))

    def state_dict(self) -> dict:
        return {"residual_square": self.residual_square.clone(), "latent": self.latent.clone()}

    def load_state_dict(self, state: dict) -> None:
        self.residual_square, self.latent = state["residual_square"].clone(), state["latent"].clone()
