"""How well the values of a slow sensor tell its time constant.

From one block to the next the measurements give, whatever they were before,

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

from gp_mapping.mapping.response.block_evidence import BlockEvidence, Steps
from gp_mapping.mapping.response.track import Track

__all__ = ["Known", "delay_penalty", "known_constant", "late_evidence", "slow_evidence"]

_FREE = 1e4  # variance of what a pass begins with, in that of the field
_FIRST = 0.1  # of log τ: beside the start, from where the width of the posterior is guessed
_WIDTHS = 0.03, 0.3  # of log τ: least and most between two time constants
_MOST = 6  # steps to either side
_ENOUGH = 4.5  # nats below the best: three standard deviations
_CLIMBS = 12  # steps of _FIRST
_LATE = 0.2  # s: stamps that are not exact, as where the map learns a time offset


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
    best = BlockEvidence(track, kernel, lengthscale, noise)
    start, width = yield from _peak(best, math.log(seconds))

    # equally far apart: the sum over them is the integral
    evidence: dict[int, float] = {}
    for side in (range(_MOST + 1), range(-1, -_MOST - 1, -1)):
        for k in side:
            evidence[k] = yield from best.evidence(best.of_constant(math.exp(start + k * width)))
            if max(evidence.values()) - evidence[k] > _ENOUGH:
                break

    places = torch.tensor([start + k * width for k in evidence], dtype=torch.float64)
    share = torch.softmax(torch.tensor(list(evidence.values()), dtype=torch.float64), 0)
    mean = float((share * places).sum())
    variance = float((share * (places - mean).square()).sum())

    # so that length, noise and signal go with the time constant that is taken
    yield from best.evidence(best.of_constant(math.exp(mean)))
    lengthscale, noise = (math.exp(value) for value in best.vertex)
    return Known(math.exp(mean), math.sqrt(variance), lengthscale, noise, best.signal)


def slow_evidence(
    track: Track, kernel: str, seconds: float, lengthscale: float, noise: float
) -> Steps:
    """Log evidence of a time constant near `seconds`, comparable with `late_evidence`.

    Args:
        track: as of `known_constant`, and the others.
        kernel: name of the field's covariance function.
        seconds: s.
        lengthscale: m.
        noise: of a block.
    """
    best = BlockEvidence(track, kernel, lengthscale, noise)
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
) -> Steps:
    """Largest log evidence of stamps that are late by some seconds, with a prior of the delay.

    Drivers stamp a measurement when it comes, tenths of a second late; some are far later. So the
    prior is Cauchy's about 0, with _LATE as its half width.

    Args:
        track: as of `known_constant`, and the others.
        kernel: name of the field's covariance function.
        seconds: delays, s.
        lengthscale: m.
        noise: of a block.
    """
    best, most = BlockEvidence(track, kernel, lengthscale, noise), -math.inf
    for each in seconds:
        value = yield from best.evidence(best.of_delay(each))
        most = max(most, value - delay_penalty(each))
    return most


def delay_penalty(seconds: float) -> float:
    """By how many nats a delay is less likely than none, before there are any values."""
    return math.log1p((seconds / _LATE) ** 2)


def _peak(best: BlockEvidence, start: float) -> Generator[None, None, tuple[float, float]]:
    """Log τ of the highest evidence, and how far from it that is half a nat lower: about.

    Args:
        best: evidences.
        start: log τ near it.
    """
    evidence = {0: (yield from best.evidence(best.of_constant(math.exp(start))))}
    top = 0
    for _ in range(_CLIMBS):
        for k in (top - 1, top + 1):
            if k not in evidence:
                evidence[k] = yield from best.evidence(
                    best.of_constant(math.exp(start + k * _FIRST))
                )
        higher = max(evidence, key=lambda at: evidence[at])
        if higher == top:
            break
        top = higher
    if top - 1 not in evidence or top + 1 not in evidence:  # still climbing
        return start + top * _FIRST, _WIDTHS[1]

    down, up = evidence[top] - evidence[top - 1], evidence[top] - evidence[top + 1]
    if not 0.0 < down + up < math.inf:
        return start + top * _FIRST, _WIDTHS[1]
    at = top + 0.5 * (down - up) / (down + up)
    width = _FIRST / math.sqrt(down + up)
    return start + at * _FIRST, min(max(width, _WIDTHS[0]), _WIDTHS[1])
