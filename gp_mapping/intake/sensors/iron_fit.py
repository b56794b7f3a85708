"""An ellipsoid for readings of a field of fixed strength, however little of it they show.

With S = exp(E), E symmetric and without a trace (five numbers of an orthonormal basis), a reading m
lies beside the ellipsoid |S (m − h)| = F by about

    d = (|S (m − h)| − F) / |∂|S (m − h)| / ∂m| ,   d ~ N(0, σ²)

Readings of small tilt draw a narrow band, which fits a sphere and many ellipsoids alike. What it
does not tell, the prior does:

    h ~ N(0, s² I)            s thrice as long as the readings spread
    E's numbers ~ N(0, τ²)    τ of a grid: each weighted by its evidence (Laplace)

so the soft iron that is seen tells how strong the one may be that is not, and the mean and the
variance are those over all τ.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

__all__ = ["Ellipsoid", "fit_ellipsoid", "noise_beside"]

_STRENGTHS = np.geomspace(0.002, 0.3, 6)  # τ
_USUAL = 0.1  # τ while σ is not known
_FARTHEST = 3.0  # s, in spreads of the readings
_HELD = 1e4  # times tighter is the prior across a plane that readings lie in
_COARSE = 0.05  # σ of the sphere to begin with, in spreads
_FINEST = 1e-4  # σ at the least: of means of boxes, whose surface is curved
_ROBUST = 3.0  # σ from which on a reading counts less
_MAD = 1.4826


class Ellipsoid(NamedTuple):
    """What readings of a field of fixed strength tell.

    Attributes:
        hard: its middle (3,), T.
        hard_covariance: of its middle (3, 3), T².
        soft: what makes a sphere of it, symmetric with determinant 1 (3, 3).
        soft_stddev: of each entry (3, 3).
        noise: σ of a reading beside it, T.
    """

    hard: np.ndarray
    hard_covariance: np.ndarray
    soft: np.ndarray
    soft_stddev: np.ndarray
    noise: float


class _Model:
    """Least squares of d / σ and of the prior.

    The parameters are h and F in spreads of the readings, and E's numbers.

    Args:
        points: readings in order of time (N, 3), in spreads about their mean.
        weights: of each (N,), 1 at most.
        middle: where h is expected: minus that mean.
        normal: (3,) of the plane that they lie in; None: they do not.
    """

    def __init__(
        self,
        points: np.ndarray,
        weights: np.ndarray,
        middle: np.ndarray,
        normal: np.ndarray | None,
    ):
        self.points, self.root = points, np.sqrt(weights)
        self.middle, self.shapes = middle, _shapes(normal)
        self.pull = np.eye(3) / _FARTHEST
        if normal is not None:
            self.pull += _HELD * np.outer(normal, normal)

    def soft(self, theta: np.ndarray) -> np.ndarray:
        """S = exp(E), (3, 3)."""
        values, vectors = np.linalg.eigh(np.tensordot(theta[4:], self.shapes, 1))
        return (vectors * np.exp(values)) @ vectors.T

    def soft_slopes(self, theta: np.ndarray) -> np.ndarray:
        """∂S by each of E's numbers, (K, 3, 3)."""
        values, vectors = np.linalg.eigh(np.tensordot(theta[4:], self.shapes, 1))
        apart = values[:, None] - values
        equal = np.abs(apart) < 1e-9
        middle = np.exp(0.5 * (values[:, None] + values))
        mixed = np.where(equal, middle, np.subtract.outer(*[np.exp(values)] * 2) / (apart + equal))
        return vectors @ ((vectors.T @ self.shapes @ vectors) * mixed) @ vectors.T

    def beside(self, theta: np.ndarray) -> np.ndarray:
        """d of each reading times the root of its weight, in spreads."""
        soft = self.soft(theta)
        field = (self.points - theta[:3]) @ soft
        length = np.linalg.norm(field, axis=1) + 1e-12
        slope = np.linalg.norm(field @ soft, axis=1) / length + 1e-12
        return self.root * (length - theta[3]) / slope

    def slopes(self, theta: np.ndarray) -> np.ndarray:
        """∂d by the parameters (N, 4 + K), times the root of each weight."""
        soft = self.soft(theta)
        place = self.points - theta[:3]
        field = place @ soft  # f = S q, L = |f|
        lifted = field @ soft  # a = S f, |a| = g L
        again = lifted @ soft
        length = np.linalg.norm(field, axis=1)[:, None] + 1e-12
        high = np.linalg.norm(lifted, axis=1)[:, None] + 1e-12
        by_length = (2.0 * length - theta[3]) / high  # d = (L − F) L / |a|
        by_high = -(length - theta[3]) * length / high**2

        # ∂L = fᵀ ∂f / L, ∂|a| = aᵀ ∂a / |a|
        moved = -by_length * lifted / length - by_high * (again @ soft) / high
        turns = self.soft_slopes(theta)
        of_place, of_field = place @ turns, field @ turns  # (K, N, 3)
        long = (of_place * field).sum(2).T / length
        tall = ((of_field * lifted).sum(2) + (of_place * again).sum(2)).T / high
        shaped = by_length * long + by_high * tall
        return self.root[:, None] * np.hstack([moved, -length / high, shaped])

    def prior(self, theta: np.ndarray, strength: float) -> np.ndarray:
        """Of h and E's numbers, in standard deviations.

        Args:
            theta: parameters (4 + K,).
            strength: τ.
        """
        return np.concatenate([self.pull @ (theta[:3] - self.middle), theta[4:] / strength])

    def start(self) -> np.ndarray:
        """The sphere of |m|² = 2 m·h + F² − |h|², with h's prior: linear."""
        ones = np.ones((len(self.points), 1))
        spread = 2.0 * _COARSE * np.linalg.norm(self.points, axis=1).mean() * len(ones) ** 0.5
        pull = spread * np.hstack([self.pull, np.zeros((3, 1))])
        rows = np.vstack([np.hstack([2.0 * self.points, ones]), pull])
        right = np.concatenate([(self.points**2).sum(1), pull[:, :3] @ self.middle])
        h0, h1, h2, rest = np.linalg.lstsq(rows, right, rcond=None)[0]
        strength = math.sqrt(max(rest + h0**2 + h1**2 + h2**2, 1e-6))
        return np.array([h0, h1, h2, strength, *np.zeros(len(self.shapes))])

    def most_likely(self) -> tuple[np.ndarray, float]:
        """Parameters with a usual τ, and σ of the readings beside them, in spreads."""
        theta, noise = self.start(), _COARSE
        for _ in range(3):
            theta = self.best(theta, noise, _USUAL)[0]
            beside = np.abs(self.beside(theta)[self.root > 0.7])
            noise = max(_MAD * float(np.median(beside)), _FINEST)
        return theta, noise

    def best(self, start: np.ndarray, noise: float, strength: float):
        """Most probable parameters, their covariance, and the log evidence.

        A robust loss, so that single readings do not decide.

        Args:
            start: parameters (4 + K,).
            noise: σ, in spreads.
            strength: τ.
        """

        scale, unit = noise * _ROBUST, np.ones(len(start) - 4) / strength
        of_prior = np.zeros((3 + len(unit), len(start)))
        of_prior[:3, :3] = self.pull
        of_prior[3:, 4:] = np.diag(unit)

        def residual(theta: np.ndarray) -> np.ndarray:
            """Of readings, with the square of each bounded, and of the prior."""
            d = self.beside(theta) / scale
            return np.concatenate([d * _bent(d), self.prior(theta, strength)])

        def slopes(theta: np.ndarray) -> np.ndarray:
            """∂ of it."""
            d = self.beside(theta) / scale
            factor = _ROBUST**2 / np.sqrt(1.0 + d**2) / _bent(d) / scale
            return np.vstack([factor[:, None] * self.slopes(theta), of_prior])

        found = least_squares(residual, start, slopes, max_nfev=60, ftol=1e-7, xtol=1e-7)
        precision = found.jac.T @ found.jac
        sign, log = np.linalg.slogdet(precision)
        evidence = -found.cost - len(self.shapes) * math.log(strength) - 0.5 * log
        covariance = np.linalg.pinv(precision, hermitian=True)
        return found.x, covariance, evidence if sign > 0 else -math.inf


def noise_beside(points: np.ndarray, weights: np.ndarray) -> float:
    """σ of readings beside the ellipsoid that fits them best, T.

    Args:
        points: (N, 3) T.
        weights: of each (N,), 1 at most.
    """
    mean = points.mean(0)
    spread = float(np.sqrt(((points - mean) ** 2).sum(1).mean()))
    model = _Model((points - mean) / spread, weights, -mean / spread, None)
    return model.most_likely()[1] * spread


def _bent(d: np.ndarray) -> np.ndarray:
    """Residual by d: √(18 (√(1 + d²) − 1)) / d, that of a soft L1 loss."""
    return _ROBUST * np.sqrt(2.0 / (np.sqrt(1.0 + d**2) + 1.0))


def _shapes(normal: np.ndarray | None) -> np.ndarray:
    """Orthonormal basis of symmetric matrices without a trace; given a normal, of its plane's."""
    pairs: tuple[tuple[int, int], ...] = ((0, 1), (0, 2), (1, 2))
    if normal is None:
        axes = np.eye(3)
        flat = [np.diag([-1.0, -1.0, 2.0]) / math.sqrt(6.0)]
    else:
        axes, pairs, flat = np.linalg.svd(normal[None])[2][[1, 2]], ((0, 1),), []
    crossed = [(np.outer(axes[i], axes[j]) + np.outer(axes[j], axes[i])) for i, j in pairs]
    stretched = np.outer(axes[0], axes[0]) - np.outer(axes[1], axes[1])
    return np.stack([*(each / math.sqrt(2.0) for each in [*crossed, stretched]), *flat])


def _apart(beside: np.ndarray) -> float:
    """How many readings tell as much as one whose error is its own: 1 + 2 Σ of autocorrelations.

    Up to the first that is not positive.
    """
    each = np.clip(beside, *np.percentile(beside, [1.0, 99.0]))
    each = each - each.mean()
    spectrum = np.abs(np.fft.rfft(each, 2 * len(each))) ** 2
    correlation = np.fft.irfft(spectrum)[: len(each) // 2]
    if correlation[0] <= 0.0:
        return 1.0
    correlation = correlation / correlation[0]
    first = int(np.argmax(correlation <= 0.05)) or len(correlation)
    return float(1.0 + 2.0 * correlation[1:first].sum())


def fit_ellipsoid(
    points: np.ndarray, weights: np.ndarray, normal: np.ndarray | None = None
) -> Ellipsoid:
    """Mean and standard deviation of an ellipsoid, given readings.

    Args:
        points: (N, 3) T, in order of time.
        weights: of each (N,), 1 at most.
        normal: (3,) of the plane that they lie in: nothing is told along it; None: they do not.
    """
    mean = points.mean(0)
    spread = float(np.sqrt(((points - mean) ** 2).sum(1).mean()))
    model = _Model((points - mean) / spread, weights, -mean / spread, normal)
    theta, noise = model.most_likely()
    alike = noise * math.sqrt(_apart(model.beside(theta)))

    found, begin = [], theta
    for strength in _STRENGTHS[::-1]:
        found.append(model.best(begin, alike, strength))
        begin = found[-1][0]
    evidence = np.array([each[2] for each in found])
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()

    theta = sum(w * each[0] for w, each in zip(weights, found))
    covariance = sum(
        w * (each[1] + np.outer(each[0] - theta, each[0] - theta))
        for w, each in zip(weights, found)
    )
    shapes = model.shapes.reshape(len(model.shapes), 9)
    variance = ((shapes.T @ covariance[4:, 4:]) * shapes.T).sum(1).reshape(3, 3)
    return Ellipsoid(
        mean + spread * theta[:3],
        spread**2 * covariance[:3, :3],
        model.soft(theta),
        np.sqrt(variance),
        noise * spread,
    )
