"""How well the values of a slow sensor tell its time constant.

From one block to the next what a sensor tells gives, whatever it told before,

    e_i = y_i − a y_{i−1} = ∫ exp(−(t_i − t)/τ)/τ f̄(t) dt + ε_i − a ε_{i−1},   a = exp(−Δ/τ)

with f̄ the average of the field over a block. So e_i is (1 − a) times a weighted mean of the field.
Two places of equal weight stand for it, a standard deviation of these weights before and after
their mean: exact for a field of third degree along the way. Noise is correlated from one e to the
next, which the covariance (1 + a² on the diagonal, −a beside it) says.

The evidence of e is that of y with an unknown beginning of each pass. For each of some τ it is
taken at the lengthscale and the noise that suit it best, with Laplace's integral over both; then

    E[log τ] = Σ p_k log τ_k,   p_k ∝ exp(evidence_k)

and Var[log τ] likewise, a flat prior on log τ.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import NamedTuple

import torch
from torch import Tensor

from gp_mapping.core.kernels import make_kernel
from gp_mapping.mapping.response.track import Track

__all__ = ["Known", "known_constant", "late_evidence", "slow_evidence"]

_FREE = 1e4  # variance of the field's unknown level, in that of the field
_FIRST = 0.1  # of log τ: beside the start, from where the width of the posterior is guessed
_WIDTHS = 0.03, 0.3  # of log τ: least and most between two time constants
_MOST = 6  # steps to either side
_ENOUGH = 4.5  # nats below the best: three standard deviations
_CLIMBS = 12  # steps of _FIRST
_STEPS = 0.15, 0.25  # of log lengthscale, and of log noise
_LEAST, _LARGEST = math.log(1e-3), 0.0  # of log noise, in standard deviations of the field
_FARTHEST = 10  # steps of log lengthscale from the start

_Steps = Generator[None, None, float]


class Known(NamedTuple):
    """What is known of a time constant.

    Attributes:
        seconds: τ of the mean of log τ, s.
        deviation: standard deviation of log τ.
        lengthscale: of the field at the best τ, m.
        noise: of one block at the best τ, in standard deviations of the field.
        signal: variance of the field at the best τ, in the squared unit of the values.
    """

    seconds: float
    deviation: float
    lengthscale: float
    noise: float
    signal: float


def known_constant(
    track: Track, kernel: str, seconds: float, lengthscale: float, noise: float
) -> Generator[None, None, Known]:
    """What the values say of τ; yields after each evidence, O(N³).

    Args:
        track: at least ten rows with values of variance 1 or so.
        kernel: name of the field's covariance function.
        seconds: τ near the best, s.
        lengthscale: near the best, m.
        noise: of a block near the best, in standard deviations of the field.
    """
    best = _Best(track, kernel, lengthscale, noise)
    start, width = yield from _peak(best, math.log(seconds))

    # equally far apart: the sum over them is the integral
    told: dict[int, float] = {}
    for side in (range(_MOST + 1), range(-1, -_MOST - 1, -1)):
        for k in side:
            told[k] = yield from best.evidence(best.of_constant(math.exp(start + k * width)))
            if max(told.values()) - told[k] > _ENOUGH:
                break

    places = torch.tensor([start + k * width for k in told], dtype=torch.float64)
    share = torch.softmax(torch.tensor(list(told.values()), dtype=torch.float64), 0)
    mean = float((share * places).sum())
    variance = float((share * (places - mean).square()).sum())

    # so that what is told goes with the time constant that is taken
    yield from best.evidence(best.of_constant(math.exp(mean)))
    lengthscale, noise = (math.exp(value) for value in best.vertex)
    return Known(math.exp(mean), math.sqrt(variance), lengthscale, noise, best.signal)


def slow_evidence(
    track: Track, kernel: str, seconds: float, lengthscale: float, noise: float
) -> _Steps:
    """Log evidence of a time constant near `seconds`, comparable with `late_evidence`.

    Args:
        track: as of `known_constant`, and the others.
        kernel: name of the field's covariance function.
        seconds: s.
        lengthscale: m.
        noise: of a block.
    """
    best = _Best(track, kernel, lengthscale, noise)
    start, _ = yield from _peak(best, math.log(seconds))
    value = yield from best.evidence(best.of_constant(math.exp(start)))
    # each pass begins anywhere
    return value - 0.5 * float(track.begins.sum()) * math.log(_FREE)


def late_evidence(
    track: Track,
    kernel: str,
    seconds: list[float],
    lengthscale: float,
    noise: float,
) -> _Steps:
    """Largest log evidence of stamps that are late by some seconds.

    Args:
        track: as of `known_constant`, and the others.
        kernel: name of the field's covariance function.
        seconds: delays, s.
        lengthscale: m.
        noise: of a block.
    """
    best, most = _Best(track, kernel, lengthscale, noise), -math.inf
    for each in seconds:
        most = max(most, (yield from best.evidence(best.of_delay(each))))
    return most


def _peak(best: _Best, start: float) -> Generator[None, None, tuple[float, float]]:
    """Log τ of the highest evidence, and how far from it that is half a nat lower: about.

    Args:
        best: evidences.
        start: log τ near it.
    """
    told = {0: (yield from best.evidence(best.of_constant(math.exp(start))))}
    top = 0
    for _ in range(_CLIMBS):
        for k in (top - 1, top + 1):
            if k not in told:
                told[k] = yield from best.evidence(best.of_constant(math.exp(start + k * _FIRST)))
        higher = max(told, key=lambda at: told[at])
        if higher == top:
            break
        top = higher
    if top - 1 not in told or top + 1 not in told:  # still climbing
        return start + top * _FIRST, _WIDTHS[1]

    down, up = told[top] - told[top - 1], told[top] - told[top + 1]
    if not 0.0 < down + up < math.inf:
        return start + top * _FIRST, _WIDTHS[1]
    at = top + 0.5 * (down - up) / (down + up)
    width = _FIRST / math.sqrt(down + up)
    return start + at * _FIRST, min(max(width, _WIDTHS[0]), _WIDTHS[1])


class _Best:
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
        self.start, self.vertex, self.signal = (0, 0), self.origin, 1.0

    def evidence(self, weights: _Weights) -> _Steps:
        """Log evidence of a time constant or delay, up to a constant."""
        made: dict[int, Tensor] = {}
        told: dict[tuple[int, int], float] = {}
        signal: dict[tuple[int, int], float] = {}

        best = self.start
        while True:
            near = [p for p in _beside(best) if self._is_inside(p)]
            for i, j in (*near, best):
                if (i, j) in told:
                    continue
                if i not in made:
                    made[i] = self._covariance(weights, math.exp(self._at(i, j)[0]))
                told[i, j], signal[i, j] = _evidence(made[i], weights, math.exp(self._at(i, j)[1]))
                yield
            higher = max(near, key=lambda at: told[at])
            if told[higher] <= told[best]:
                break
            best = higher

        self.start, self.vertex, self.signal = best, self._at(*best), signal[best]
        i, j = best
        corner = i + 1, j + 1
        if not all(self._is_inside(p) for p in (*_beside(best), corner)):
            return told[best]
        if corner not in told:
            told[corner], _ = _evidence(made[i + 1], weights, math.exp(self._at(*corner)[1]))
            yield
        return self._integral(told, i, j)

    def _integral(self, told: dict[tuple[int, int], float], i: int, j: int) -> float:
        """Laplace's, by the parabola through a place, its neighbours, and the one beside two."""
        top = told[i, j]
        left, right, low, high = (told[p] for p in _beside((i, j)))
        across = told[i + 1, j + 1] - right - high + top
        slope = torch.tensor([0.5 * (right - left), 0.5 * (high - low)], dtype=torch.float64)
        curved = torch.tensor(
            [[2 * top - left - right, -across], [-across, 2 * top - low - high]],
            dtype=torch.float64,
        )
        factor, failed = torch.linalg.cholesky_ex(curved)
        if int(failed) or not bool(torch.isfinite(factor).all()):
            return top
        at = torch.cholesky_solve(slope[:, None], factor)[:, 0].clamp(-1.0, 1.0)
        self.vertex = tuple(
            value + step * float(shift) for value, step, shift in zip(self._at(i, j), _STEPS, at)
        )
        gain = float(slope @ at - 0.5 * at @ curved @ at)
        return top + gain - float(factor.diagonal().log().sum())

    def _at(self, i: int, j: int) -> tuple[float, float]:
        """Log lengthscale and log noise of a place of the grid."""
        return self.origin[0] + i * _STEPS[0], self.origin[1] + j * _STEPS[1]

    def _is_inside(self, place: tuple[int, int]) -> bool:
        """Whether a place of the grid may be looked at."""
        noise = self._at(*place)[1]
        return abs(place[0]) <= _FARTHEST and _LEAST <= noise <= _LARGEST

    def of_delay(self, seconds: float) -> _Weights:
        """What belongs to a delay, s: each row is the field's average around an earlier place."""
        track = self.track
        apart = 0.0 if track.span is None else track.span / math.sqrt(12.0)
        nodes = torch.cat([track.places_before(seconds + s * apart) for s in (1, -1)])
        one = torch.ones_like(track.y)
        return _Weights(nodes, one, torch.diag(one), track.y)

    def of_constant(self, tau: float) -> _Weights:
        """What belongs to a time constant, s."""
        track, later, elapsed = self.track, self.later, self.elapsed
        a = torch.exp(-elapsed / tau)
        ratio = a / (1.0 - a)
        mean = elapsed - tau + elapsed * ratio  # since the block before, s
        variance = tau**2 - elapsed.square() * ratio * (1.0 + ratio)
        if track.span is not None:
            variance = variance + (track.span[later].square() + track.span[later - 1].square()) / 24

        before, way = track.x[later - 1], track.x[later] - track.x[later - 1]
        apart = variance.clamp_min(0.0).sqrt()
        nodes = torch.cat(
            [before + (at / elapsed)[:, None] * way for at in (mean - apart, mean + apart)]
        )
        noise = torch.diag(1.0 + a.square())
        noise[self.linked, self.linked + 1] = noise[self.linked + 1, self.linked] = -a[
            self.linked + 1
        ]
        return _Weights(nodes, 1.0 - a, noise, track.y[later] - a * track.y[later - 1])

    def _covariance(self, weights: _Weights, lengthscale: float) -> Tensor:
        """Of what the field makes of e, in its variance: (n, n)."""
        n = len(weights.told)
        two = make_kernel(self.kernel, 1.0, lengthscale)(weights.nodes, weights.nodes)
        mean = 0.25 * (two[:n, :n] + two[:n, n:] + two[n:, :n] + two[n:, n:]) + _FREE
        return weights.gain[:, None] * mean * weights.gain


class _Weights(NamedTuple):
    """What belongs to a time constant.

    Attributes:
        nodes: two places for each e (2n, 2), m: the earlier ones, then the later ones.
        gain: 1 − a (n,).
        noise: covariance of e's noise (n, n), in that of one block.
        told: e (n,).
    """

    nodes: Tensor
    gain: Tensor
    noise: Tensor
    told: Tensor


def _beside(place: tuple[int, int]) -> list[tuple[int, int]]:
    """The four neighbours of a place of a grid."""
    i, j = place
    return [(i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)]


def _evidence(covariance: Tensor, weights: _Weights, noise: float) -> tuple[float, float]:
    """log N(e; 0, s² C) at the best s², up to a constant; and that s²."""
    factor, failed = torch.linalg.cholesky_ex(covariance + noise**2 * weights.noise)
    if int(failed):
        return -math.inf, 1.0
    told = weights.told[:, None]
    square = float(torch.linalg.solve_triangular(factor, told, upper=False).square().sum())
    n = len(told)
    return -0.5 * n * math.log(square / n) - float(factor.diagonal().log().sum()), square / n
