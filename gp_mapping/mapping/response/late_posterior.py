"""How well the values of a slow sensor tell its time constant and a dead time before it.

Gas that a pump draws through a hose comes d later, and the sensor follows it with τ:

    y(t) = ∫ exp(−s/τ)/τ f(x(t − d − s)) ds

To first order in the frequency both are one, τ + d; they differ by the second, τ²/2 against none,
which values tell where the field changes within τ of driving. The evidence over u = (log τ, d) is
summed over a lattice about its top, point by point from there on to where it is little:

    E[u] = Σ p_k u_k,   p_k ∝ exp(evidence_k)

and the variances likewise, a flat prior on both.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from itertools import product
from typing import NamedTuple

import torch

from gp_mapping.mapping.response.block_evidence import BlockEvidence
from gp_mapping.mapping.response.posterior import Known
from gp_mapping.mapping.response.track import Track

__all__ = ["KnownBoth", "known_both"]

_FIRST = 0.1, 0.03  # between two of log τ; and of the delay, in τ + d: on the way to the top
_CLIMBS = 12  # of one step each
_SPACING = 1.2  # standard deviations of one alone, between two that are summed
_TIMES = 0.25, 3.0  # of the first distance, that this is at least and at most
_ENOUGH = 3.5  # nats below the best
_MOST = 48  # that are summed

_At = tuple[int, int]  # numbers of a time constant and of a delay


class KnownBoth(NamedTuple):
    """What is known of a time constant and of a delay.

    Attributes:
        constant: of the time constant.
        delay: s.
        stddev: of the delay, s.
    """

    constant: Known
    delay: float
    stddev: float


def known_both(
    track: Track,
    kernel: str,
    seconds: float,
    delay: float,
    lengthscale: float,
    noise: float,
) -> Generator[None, None, KnownBoth]:
    """What the values say of τ and of the delay; yields after each evidence, O(N³).

    Args:
        track: at least ten rows with values of variance 1 or so.
        kernel: name of the field's covariance function.
        seconds: τ near the best, s.
        delay: near the best, s.
        lengthscale: near the best, m.
        noise: of a block near the best, in standard deviations of the field.
    """
    best = BlockEvidence(track, kernel, lengthscale, noise)
    origin, widths = (math.log(seconds), delay), (_FIRST[0], _FIRST[1] * (seconds + delay))
    told: dict[_At, float] = {}

    def place(at: _At) -> tuple[float, float]:
        log, late = (start + k * width for start, k, width in zip(origin, at, widths))
        return math.exp(log), late

    def see(at: _At) -> Generator[None, None, None]:
        if at not in told:
            before = place(at)
            told[at] = -math.inf
            if before[1] >= 0.0:
                told[at] = yield from best.evidence(best.of_constant(*before))

    top = 0, 0
    for _ in range(_CLIMBS):
        for at in _beside(top):
            yield from see(at)
        higher = max(told, key=lambda at: told[at])
        if higher == top:
            break
        top = higher

    for at in _beside(top):  # also where it was still climbing
        yield from see(at)

    # then as far apart as the top is wide along each axis
    tau, delay = place(top)
    falls = [
        told[top] - 0.5 * (told[top[0] - i, top[1] - j] + told[top[0] + i, top[1] + j])
        for i, j in ((1, 0), (0, 1))
    ]
    origin, widths = (
        (math.log(tau), delay),
        tuple(
            width * min(max(_SPACING / math.sqrt(max(2.0 * fall, 1e-3)), _TIMES[0]), _TIMES[1])
            for width, fall in zip(widths, falls)
        ),
    )
    told = {}
    yield from see((0, 0))
    around: set[_At] = set()
    while len(told) < _MOST:
        near = max(told.values()) - _ENOUGH
        left = [at for at in told if told[at] > near and at not in around]
        if not left:
            break
        at = max(left, key=lambda at: told[at])
        around.add(at)
        for each in _beside(at):
            yield from see(each)

    share = torch.softmax(torch.tensor(list(told.values()), dtype=torch.float64), 0)
    places = torch.tensor([place(at) for at in told], dtype=torch.float64)
    places[:, 0] = places[:, 0].log()
    mean = share @ places
    deviations = (share @ (places - mean).square()).sqrt().clamp_min(1e-3).tolist()

    # so that length, noise and signal go with what is taken
    tau, delay = math.exp(float(mean[0])), float(mean[1])
    yield from best.evidence(best.of_constant(tau, delay))
    length, noise = (math.exp(value) for value in best.vertex)
    return KnownBoth(Known(tau, deviations[0], length, noise, best.signal), delay, deviations[1])


def _beside(at: _At) -> list[_At]:
    """A place of a lattice and its eight neighbours."""
    return [(at[0] + i, at[1] + j) for i, j in product((-1, 0, 1), (-1, 0, 1))]
