"""The evidence of a slow sensor's time constant, or of a delay, from averages of short ways.

It is compared on a grid of lengthscales and noises: climbed to its top from where the
last one was, and integrated by the parabola about the top (Laplace's approximation).
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import NamedTuple

import torch
from torch import Tensor

from gp_mapping.core.kernels import make_kernel
from gp_mapping.mapping.response.track import Track

__all__ = ["BlockEvidence", "Steps", "Weights"]

_FREE = 1e4  # variance of the field's unknown level, in that of the field
_STEPS = 0.1, 0.12  # of log lengthscale, and of log noise
_LEAST, _LARGEST = math.log(1e-3), 0.0  # of log noise, in standard deviations of the field
_FARTHEST = 15  # steps of log lengthscale from the start
_FLAT = 0.25  # nats by a step squared: least curvature, of a width of two steps
_REACH, _MOST = 3.0, 3.0  # steps to the top of a parabola, and nats, at most

Steps = Generator[None, None, float]
_Place = tuple[int, int]  # of the grid: numbers of lengthscale and noise


class BlockEvidence:
    """Evidence of a time constant, over lengthscales and noises about the best ones.

    Args:
        track: the blocks.
        kernel: name of the field's covariance function.
        lengthscale: where to begin, m.
        noise: where to begin.

    Attributes:
        vertex: log lengthscale and log noise that suited the last time constant best.
        signal: variance of the field that did.
    """

    def __init__(self, track: Track, kernel: str, lengthscale: float, noise: float):
        self.kernel, self.track = kernel, track
        later = (~track.begins[1:]).nonzero()[:, 0] + 1
        elapsed = track.stamp[later] - track.stamp[later - 1]
        self.later, self.elapsed = later[elapsed > 0], elapsed[elapsed > 0]
        # rows whose block before is that of the row before
        self.linked = (self.later[1:] == self.later[:-1] + 1).nonzero()[:, 0]

        self.origin = math.log(lengthscale), math.log(noise)
        self.start: _Place = (0, 0)
        self.vertex, self.signal = self.origin, 1.0

    def evidence(self, weights: Weights) -> Steps:
        """Log evidence of a time constant or delay, up to a constant."""
        seen = _Seen(weights)
        self.start = yield from self._climb(seen, self.start)
        return self._integral(seen, self.start)

    def _climb(self, seen: _Seen, best: _Place) -> Generator[None, None, _Place]:
        """The highest place, when its neighbours and its corner have been seen.

        Args:
            seen: so far.
            best: where to begin.
        """
        while True:
            near = [p for p in _beside(best) if self._is_inside(p)]
            for place in (best, *near):
                yield from self._see(seen, place)
            higher = max(near, key=lambda at: seen.evidence[at])
            if seen.evidence[higher] > seen.evidence[best]:
                best = higher
                continue

            # on a ridge that runs across the axes no neighbour is higher, but its top is farther
            corners = [p for p in (_corner(best),) if self._is_inside(p)]
            for place in corners:
                yield from self._see(seen, place)
            top = self._top(seen, best)
            if top is not None:
                yield from self._see(seen, top)
            higher = max(seen.evidence, key=lambda at: seen.evidence[at])
            if seen.evidence[higher] <= seen.evidence[best]:
                return best
            best = higher

    def _top(self, seen: _Seen, best: _Place) -> _Place | None:
        """The place nearest to the top of the parabola about one; None where it is that one."""
        if not self._has_all(best):
            return None
        _, shift = _laplace(seen.evidence, best)
        top = best[0] + round(shift[0]), best[1] + round(shift[1])
        return top if top != best and self._is_inside(top) else None

    def _see(self, seen: _Seen, place: _Place) -> Generator[None, None, None]:
        """Evidence at a place of the grid, in a step, where it has not been seen yet."""
        if place in seen.evidence:
            return
        lengthscale, noise = (math.exp(value) for value in self._at(place))
        if place[0] not in seen.covariance:
            seen.covariance[place[0]] = self._covariance(seen.weights, lengthscale)
        seen.evidence[place], seen.signal[place] = _evidence(
            seen.covariance[place[0]], seen.weights, noise
        )
        yield

    def _integral(self, seen: _Seen, best: _Place) -> float:
        """Log of Laplace's integral about a place; at the edge of the grid, the evidence there."""
        self.vertex, self.signal = self._at(best), seen.signal[best]
        if not self._has_all(best):
            return seen.evidence[best]
        value, shift = _laplace(seen.evidence, best)
        self.vertex = tuple(
            value + step * part for value, step, part in zip(self.vertex, _STEPS, shift)
        )
        return value

    def _has_all(self, place: _Place) -> bool:
        """Whether all neighbours and the corner of a place may be looked at."""
        return all(map(self._is_inside, (*_beside(place), _corner(place))))

    def _at(self, place: _Place) -> tuple[float, float]:
        """Log lengthscale and log noise of a place of the grid."""
        return self.origin[0] + place[0] * _STEPS[0], self.origin[1] + place[1] * _STEPS[1]

    def _is_inside(self, place: _Place) -> bool:
        """Whether a place of the grid may be looked at."""
        noise = self._at(place)[1]
        return abs(place[0]) <= _FARTHEST and _LEAST <= noise <= _LARGEST

    def of_delay(self, seconds: float) -> Weights:
        """What belongs to a delay, s: each row is the field's average around an earlier place."""
        track = self.track
        apart = 0.0 if track.span is None else track.span / math.sqrt(12.0)
        nodes = torch.cat([track.places_before(seconds + s * apart) for s in (1, -1)])
        one = torch.ones_like(track.y)
        return Weights(nodes, one, torch.diag(one), track.y)

    def of_constant(self, tau: float, delay: float = 0.0) -> Weights:
        """What belongs to a time constant, s.

        Args:
            tau: s.
            delay: dead time before the sensor begins to follow, s.
        """
        track, later, elapsed = self.track, self.later, self.elapsed
        a = torch.exp(-elapsed / tau)
        ratio = a / (1.0 - a)
        mean = elapsed - tau + elapsed * ratio  # since the block before, s
        variance = tau**2 - elapsed.square() * ratio * (1.0 + ratio)
        if track.span is not None:
            variance = variance + (track.span[later].square() + track.span[later - 1].square()) / 24

        apart = variance.clamp_min(0.0).sqrt()
        nodes = torch.cat([self._places(at - delay) for at in (mean - apart, mean + apart)])
        noise = torch.diag(1.0 + a.square())
        noise[self.linked, self.linked + 1] = noise[self.linked + 1, self.linked] = -a[
            self.linked + 1
        ]
        return Weights(nodes, 1.0 - a, noise, track.y[later] - a * track.y[later - 1])

    def _places(self, since: Tensor) -> Tensor:
        """Where the sensor was so long after the block before (n,), s: (n, 2) m."""
        seconds = torch.zeros_like(self.track.stamp)
        seconds[self.later] = self.elapsed - since
        return self.track.places_before(seconds)[self.later]

    def _covariance(self, weights: Weights, lengthscale: float) -> Tensor:
        """Of what the field makes of e, in its variance: (n, n)."""
        n = len(weights.differences)
        two = make_kernel(self.kernel, 1.0, lengthscale)(weights.nodes, weights.nodes)
        mean = 0.25 * (two[:n, :n] + two[:n, n:] + two[n:, :n] + two[n:, n:]) + _FREE
        return weights.gain[:, None] * mean * weights.gain


class Weights(NamedTuple):
    """What belongs to a time constant.

    Attributes:
        nodes: two places for each e (2n, 2), m: the earlier ones, then the later ones.
        gain: 1 − a (n,).
        noise: covariance of e's noise (n, n), in that of one block.
        differences: e (n,), of neighbouring blocks.
    """

    nodes: Tensor
    gain: Tensor
    noise: Tensor
    differences: Tensor


class _Seen:
    """Evidences at places of the grid, each found once.

    Args:
        weights: what belongs to the time constant or delay.
    """

    def __init__(self, weights: Weights):
        self.weights = weights
        self.covariance: dict[int, Tensor] = {}
        self.evidence: dict[_Place, float] = {}
        self.signal: dict[_Place, float] = {}


def _beside(place: _Place) -> list[_Place]:
    """The four neighbours of a place of a grid: left, right, low, high."""
    i, j = place
    return [(i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)]


def _corner(place: _Place) -> _Place:
    """The place beside it that is further along both axes."""
    return place[0] + 1, place[1] + 1


def _laplace(evidence: dict[_Place, float], at: _Place) -> tuple[float, list[float]]:
    """Log of the integral about a place of a grid, in its steps, without 2π; and its top, in steps.

    By the parabola through the place, its neighbours and its corner; where these are not finite,
    the value there.
    """
    top = evidence[at]
    left, right, low, high = (evidence[p] for p in _beside(at))
    across = right + high - top - evidence[_corner(at)]
    slope = torch.tensor([0.5 * (right - left), 0.5 * (high - low)], dtype=torch.float64)
    curved = torch.tensor(
        [[2 * top - left - right, across], [across, 2 * top - low - high]], dtype=torch.float64
    )
    if not bool(torch.isfinite(curved).all() & torch.isfinite(slope).all()):
        return top, [0.0, 0.0]  # a covariance beside it could not be factored

    # where it hardly falls along a direction, that is as wide as what was seen of it
    curves, turned = torch.linalg.eigh(curved)
    curves, along = curves.clamp_min(_FLAT), turned.mT @ slope
    shift = (turned @ (along / curves)).clamp(-_REACH, _REACH)
    gain = float(0.5 * (along.square() / curves).sum())
    return top + min(gain, _MOST) - 0.5 * float(curves.log().sum()), shift.tolist()


def _evidence(covariance: Tensor, weights: Weights, noise: float) -> tuple[float, float]:
    """log N(e; 0, s² C) at the best s², up to a constant; and that s²."""
    factor, failed = torch.linalg.cholesky_ex(covariance + noise**2 * weights.noise)
    if int(failed):
        return -math.inf, 1.0
    y = weights.differences[:, None]
    square = float(torch.linalg.solve_triangular(factor, y, upper=False).square().sum())
    n = len(y)
    return -0.5 * n * math.log(square / n) - float(factor.diagonal().log().sum()), square / n
