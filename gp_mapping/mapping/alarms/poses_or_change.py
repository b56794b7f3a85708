"""Whether the field has changed, or the poses lie off the map: what explains a run of errors?

A pose that is wrong makes an error by the shape of the map: of all cells of a run by one and the
same displacement. A field that has changed does not ask the map. So the evidence of two
explanations of a run of cells with values y_i at stated places x_i is told,

    poses    y_i ~ N(m(x_i + d + φ J (x_i − x̄)), v + σ²),   p(d) ∝ 1 / |d|²,  φ ~ N(0, φ₀²)
    change   y_i − m(x_i) ~ N(0, diag(v + σ²) + a² g(x) g(x′) k(x, x′ | w))

m and v being of a map of before the run, and J a quarter turn. d has no scale of its own between a
tenth of a lengthscale and ten; where the stated places have leapt within the run, or before it,
half of its prior lies where they have come from. (d, φ) are integrated by Laplace's method at the
best maximum that Gauss-Newton finds. A change has Matérn-5/2's kernel, and a place, which is a
window g of width w about one of the cells, or none, with g = 1; what is not known of it is summed
over some sizes a, widths and all places.

Reference:
    MacKay 2003, Information Theory, Inference, and Learning Algorithms, chapter 28.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

__all__ = ["SURE", "Run", "poses_against_change"]

SURE = 5.0  # nats

_SIZES = (0.5, 1.0, 2.0)  # of a change, in root mean squares of the errors
_WIDTHS = (0.25, 0.5, 1.0, 2.0)  # of it, in lengthscales
_NEAREST, _FARTHEST = 0.1, 10.0  # lengthscales that poses may be off
_RADII = (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)  # lengthscales off to begin at
_WAYS = 12  # in which
_STARTS = 3  # of these that are followed
_ROUNDS = 5  # of Gauss-Newton
_TURN = 0.3  # rad, φ₀
_LEAP = 3.0  # usual steps; a longer one is a leap of the poses

Predict = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


class Run(NamedTuple):
    """Cells with errors, in order of time.

    Attributes:
        x: where they are said to lie, (n, 2) m.
        y: (n, C) SI.
        predict: of places (m n, 2), m times those of the cells in order: mean (m n, C), and
            variance of a measurement there (m n,), squared SI.
        leap: by which the stated places have leapt, (2,) m; None: they have not.
        step: usual way from cell to cell, m.
    """

    x: np.ndarray
    y: np.ndarray
    predict: Predict
    leap: np.ndarray | None
    step: float


def leap_of(x: np.ndarray) -> tuple[np.ndarray | None, float]:
    """Return by how much places (n, 2) leap at their longest step, and the usual one, m."""
    steps = np.diff(x, axis=0)
    long = np.hypot(*steps.T)
    usual = float(np.median(long)) if len(long) else 0.0
    if not len(long) or long.max() <= _LEAP * usual:
        return None, usual
    return steps[long.argmax()], usual


def poses_against_change(run: Run, lengthscale: float) -> tuple[float, np.ndarray]:
    """Return by how many nats poses explain a run better than a change, and d.

    Args:
        run: of cells that have errors.
        lengthscale: of the map, m.

    Returns:
        log p(y | poses) − log p(y | change), and the place of the map that explains the run most,
        less the stated one: (2,) m.
    """
    mean, variance = run.predict(run.x)
    change = _change(run.x, run.y - mean, variance, lengthscale)
    best, off = -math.inf, np.zeros(2)
    for start in _starts(run, lengthscale):
        value, pose = _followed(run, start, lengthscale)
        if value > best:
            best, off = value, pose[:2]
    return best - change, off


def _change(x: np.ndarray, error: np.ndarray, variance: np.ndarray, lengthscale: float) -> float:
    """Return the log evidence of a change of the field, less −½ n C log 2π.

    Args:
        x: (n, 2) m.
        error: (n, C) SI.
        variance: (n,).
        lengthscale: m.
    """
    apart = np.hypot(*(x[:, None] - x[None]).transpose(2, 0, 1))
    size, channels = float(np.square(error).mean()), error.shape[1]
    everywhere, somewhere = [], []
    for width in _WIDTHS:
        r = math.sqrt(5.0) * apart / (width * lengthscale)
        kernel = (1.0 + r + r * r / 3.0) * np.exp(-r)
        # one window about each of the cells
        window = np.exp(-0.5 * np.square(apart / (width * lengthscale)))
        kernels = np.stack([kernel, *(kernel * row * row[:, None] for row in window)])
        for factor in _SIZES:
            half = np.linalg.cholesky(np.diag(variance) + factor**2 * size * kernels)
            white = np.linalg.solve(half, error)
            log_det = 2.0 * np.log(np.diagonal(half, 0, 1, 2)).sum(1)
            told = -0.5 * (np.square(white).sum((1, 2)) + channels * log_det)
            everywhere.append(told[0])
            somewhere += told[1:].tolist()
    return float(np.logaddexp(_log_mean(everywhere), _log_mean(somewhere))) - math.log(2.0)


def _log_mean(values: list[float]) -> float:
    """Return the logarithm of the mean of what has these logarithms."""
    return float(np.logaddexp.reduce(values)) - math.log(len(values))


def _likelihood(y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return log p(y | pose) of m poses, less −½ n C log 2π.

    Args:
        y: (n, C).
        mean: (m, n, C).
        variance: (m, n).
    """
    square = np.square(y - mean).sum(2) / variance
    return -0.5 * (square + y.shape[1] * np.log(variance)).sum(1)


def _prior(run: Run, pose: np.ndarray, lengthscale: float) -> float:
    """Return the log density of a pose (d, φ), 1/(m² rad)."""
    far = max(math.hypot(pose[0], pose[1]), _NEAREST * lengthscale)
    anywhere = -math.log(2.0 * math.pi * math.log(_FARTHEST / _NEAREST) * far**2)
    if far > _FARTHEST * lengthscale:
        anywhere = -math.inf
    turn = -0.5 * (pose[2] / _TURN) ** 2 - math.log(_TURN * math.sqrt(2.0 * math.pi))
    if run.leap is None:
        return anywhere + turn

    spread = max(run.step, 1e-9) ** 2
    there = float(np.square(pose[:2] + run.leap).sum())
    back = -0.5 * there / spread - math.log(2.0 * math.pi * spread)
    return float(np.logaddexp(anywhere, back)) - math.log(2.0) + turn


def _starts(run: Run, lengthscale: float) -> list[np.ndarray]:
    """Return displacements (2,) from which the best one is looked for, m."""
    ways = 2.0 * math.pi * np.arange(_WAYS) / _WAYS
    around = np.stack([np.cos(ways), np.sin(ways)], 1)
    offs = np.concatenate([radius * lengthscale * around for radius in _RADII])
    mean, variance = run.predict((offs[:, None] + run.x).reshape(-1, 2))
    n = len(run.x)
    told = _likelihood(run.y, mean.reshape(len(offs), n, -1), variance.reshape(len(offs), n))
    told = told - 2.0 * np.log(np.hypot(*offs.T))
    starts = [offs[i] for i in np.argsort(-told)[:_STARTS]]
    return starts if run.leap is None else [-run.leap, *starts]


def _moved(run: Run, poses: np.ndarray) -> np.ndarray:
    """Return where the cells lie with each of the poses (m, 3), as one list of places."""
    aside = (run.x - run.x.mean(0)) @ np.array([[0.0, 1.0], [-1.0, 0.0]])
    return (run.x + poses[:, None, :2] + poses[:, 2, None, None] * aside).reshape(-1, 2)


def _followed(run: Run, start: np.ndarray, lengthscale: float) -> tuple[float, np.ndarray]:
    """Return the log evidence about the maximum that Gauss-Newton reaches, and that maximum.

    Args:
        run: the cells.
        start: displacement to begin at, (2,) m.
        lengthscale: m.
    """
    n, channels = run.y.shape
    radius = max(float(np.hypot(*(run.x - run.x.mean(0)).T).max()), 1e-3 * lengthscale)
    nudge = np.diag([0.02 * lengthscale, 0.02 * lengthscale, 0.02 * lengthscale / radius])
    stiff = np.diag([1e-6 / lengthscale**2, 1e-6 / lengthscale**2, 1.0 / _TURN**2])

    pose, best, kept, damping = np.array([*start, 0.0]), -math.inf, None, 1e-3
    candidate = pose
    for _ in range(_ROUNDS + 1):
        poses = np.stack([candidate, *(candidate + row for row in nudge)])
        mean, variance = run.predict(_moved(run, poses))
        mean, variance = mean.reshape(4, n, channels), variance.reshape(4, n)
        value = float(_likelihood(run.y, mean[:1], variance[:1])[0])
        value -= 0.5 * float(candidate @ stiff @ candidate)
        if value > best:
            slope = ((mean[1:] - mean[:1]) / nudge.diagonal()[:, None, None]).reshape(3, n, -1)
            weighted = slope / variance[0][:, None]
            precision = np.einsum("inc,jnc->ij", weighted, slope) + stiff
            gradient = np.einsum("inc,nc->i", weighted, run.y - mean[0]) - stiff @ candidate
            pose, best, kept, damping = candidate, value, (precision, gradient), 0.3 * damping
        else:
            damping = 10.0 * damping
        if kept is None:  # the map tells no number there
            return -math.inf, pose
        precision, gradient = kept
        damped = precision + damping * np.diag(precision.diagonal())
        candidate = pose + np.linalg.solve(damped, gradient)

    # what is known worse than the prior has it spreads no farther than that
    spread = kept[0] + np.diag([*([1.0 / (_FARTHEST * lengthscale) ** 2] * 2), 0.0])
    volume = 1.5 * math.log(2.0 * math.pi) - 0.5 * float(np.linalg.slogdet(spread)[1])
    told = best + 0.5 * float(pose @ stiff @ pose) + _prior(run, pose, lengthscale)
    return told + volume, pose
