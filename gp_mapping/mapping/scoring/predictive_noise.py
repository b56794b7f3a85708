"""Predictive noise variance: the noise that would have made earlier predictions right."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from gp_mapping.mapping.scoring.autocorrelation import autocorrelation_time

__all__ = ["PredictiveNoise"]

_MEDIAN_OF_SQUARE = 0.4549  # of a standard normal


class PredictiveNoise:
    """Noise variance from a bounded window of one-step-ahead scores.

        σ² = argmin Σ [log(v + σ²) + r²/(v + σ²)] / τ

    r: residual; v: latent variance. Errors of the field persist: scores ahead of one posterior err
    together, and τ of them say what one would alone (autocorrelation.py). τ is that of the sum's
    slopes in σ², which persist little where σ² is most of an error.

    The sum runs over the scores whose latent variance is below four priors: elsewhere, as where a
    robot explores lane beside lane, a bad guess would pass for noise. Nor does it run over scores
    beyond five standard deviations of a noise that the median suggests: gross errors, each cut at
    five of the σ in use, would make that σ grow without end. `prior` (variance) counts as
    `prior_count` independent scores with v = 0 and r² = prior: the first scores cannot mislead, and
    on a survey that never comes back, where no score counts, the prior is reported. σ² is never
    below `floor`: the white noise of one sample, known from differences of neighbours, is in every
    measurement.

    Args:
        window: bound of the scores.
        prior_count: weight of the prior, in independent scores.

    Attributes:
        residual_square: r² (N, C), squared SI.
        latent: v (N, C), squared SI.
    """

    def __init__(self, window: int, prior_count: float = 20.0):
        self.window, self.prior_count = window, prior_count
        self.residual_square = self.latent = torch.empty((0, 1), dtype=torch.float64)

    def __len__(self) -> int:
        return self.latent.shape[0]

    def add(self, residual: Tensor, latent: Tensor) -> None:
        """Add scores; the oldest leave beyond the window.

        Args:
            residual: (N, C), SI.
            latent: (N, C) variance, squared SI.
        """
        for name, new in (("residual_square", residual.square().cpu()), ("latent", latent.cpu())):
            old = getattr(self, name)
            setattr(
                self,
                name,
                torch.cat([old if len(old) else old.new_empty((0, new.shape[1])), new])[
                    -self.window :
                ],
            )

    def join(self, other: "PredictiveNoise") -> None:
        """Add another's scores; beyond the window each gives up the same fraction, its oldest."""
        total = len(self) + len(other)
        if not len(other):
            return
        keep = [
            n if total <= self.window else n * self.window // total for n in (len(self), len(other))
        ]

        for name in ("residual_square", "latent"):
            own_scores, other_scores = getattr(self, name), getattr(other, name)
            # without scores of its own it has a column for one channel only
            own_scores = own_scores if len(own_scores) else other_scores[:0]
            setattr(
                self,
                name,
                torch.cat(
                    [
                        own_scores[len(own_scores) - keep[0] :],
                        other_scores[len(other_scores) - keep[1] :],
                    ]
                ),
            )

    def variances(self, prior: list[float], floor: float = 0.0) -> list[float]:
        """σ² of each component: (C,).

        Args:
            prior: (C,), or (1,) for all of them.
            floor: the least of each.
        """
        count = self.latent.shape[1]
        each = prior * count if len(prior) == 1 else prior
        return [
            max(floor, self._variance(self.residual_square[:, c], self.latent[:, c], each[c]))
            for c in range(count)
        ]

    def variance(self, prior: float) -> float:
        """σ² of all components together: that of their mean score."""
        return self._variance(self.residual_square.mean(1), self.latent.mean(1), prior)

    def _variance(self, square: Tensor, latent: Tensor, prior: float) -> float:
        """The least of the minima in log σ² over [1e-4, 1e4] prior.

        Between two points of a grid of which the first falls and the second rises lies a minimum:
        slopes cost no logarithms.

        Args:
            square: (N,) r².
            latent: (N,) v.
            prior: variance.
        """
        if not len(latent):
            return prior

        known = latent <= 4.0 * prior
        # with few scores the median is no judge
        if int(known.sum()) > self.prior_count:
            typical = square[known].median() / _MEDIAN_OF_SQUARE
            known &= square <= 25.0 * (latent + typical)

        # in units of the prior, so that the grid fits any sensor
        r2, v = square[known] / prior, latent[known] / prior
        # a prior of τ times the weight, in place of each score's τth
        slope = (r2 - v - 1.0) / (v + 1.0).square()
        n0 = self.prior_count * autocorrelation_time(slope.numpy())

        def cost(log: float) -> float:
            """Twice the negative log posterior of log σ², up to a constant."""
            total = v + math.exp(log)
            return float((total.log() + r2 / total).sum()) + n0 * (log + math.exp(-log))

        def slopes(logs: Tensor) -> Tensor:
            """Its derivative at each of log σ² (K,)."""
            sigma = logs.exp()[:, None]
            total = v + sigma
            return (sigma / total * (1.0 - r2 / total)).sum(1) + n0 * (1.0 - 1.0 / sigma[:, 0])

        def slope_at(log: float) -> float:
            """Its derivative at one log σ²."""
            sigma = math.exp(log)
            total = v + sigma
            return float((sigma / total * (1.0 - r2 / total)).sum()) + n0 * (1.0 - 1.0 / sigma)

        grid = torch.linspace(math.log(1e-4), math.log(1e4), 38, dtype=torch.float64)
        points, rise = grid.tolist(), slopes(grid).tolist()
        minima = [
            _between(
                slope_at,
                points[k],
                points[k + 1],
                rise[k],
                rise[k + 1],
            )
            for k in range(len(points) - 1)
            if rise[k] < 0.0 <= rise[k + 1]
        ]
        # at an end of the range the least value may be the end itself
        minima += [points[0]] * (rise[0] >= 0.0) + [points[-1]] * (rise[-1] < 0.0)
        return prior * math.exp(
            minima[0] if len(minima) == 1 else min(minima, key=cost, default=0.0)
        )

    def state_dict(self) -> dict:
        """Return the squared residuals and latent variances of the window, SI²."""
        return {"residual_square": self.residual_square.clone(), "latent": self.latent.clone()}

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken."""
        self.residual_square, self.latent = (
            state["residual_square"].clone(),
            state["latent"].clone(),
        )


def _between(
    slope: Callable[[float], float], low: float, high: float, left: float, right: float
) -> float:
    """Zero of a slope between two points, to 1e-5.

    False position in Illinois' form: an end that stays twice counts half, so that both ends move.

    Args:
        slope: the function.
        low: where it is negative.
        high: where it is not.
        left: its value at low, < 0.
        right: its value at high, ≥ 0.
    """
    least, kept = 1e-9 * (right - left), 0
    while high - low > 1e-5:
        middle = (low * right - high * left) / (right - left)
        value = slope(middle)
        # as good as zero
        if abs(value) <= least:
            return middle
        side = 1 if value > 0.0 else -1
        if side > 0:
            high, right, left = middle, value, left * (0.5 if kept == side else 1.0)
        else:
            low, left, right = middle, value, right * (0.5 if kept == side else 1.0)
        kept = side
    return 0.5 * (low + high)
