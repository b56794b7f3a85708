"""A change of a map at all points of a lattice, evaluated at few of them.

What samples change is smooth: away from them a cubic through every eighth point follows it. So it
is evaluated at the nodes of a coarse grid, and where a cubic through the nodes of twice the pitch
misses them by too much, at the nodes of half the pitch, down to the points themselves. What was
missed at a level says how wrong the next one may still be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_matrix

__all__ = ["Evaluate", "Refined", "refine"]

# of row and column indices (n,): changes of mean and of variance (n, C)
Evaluate = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

_PITCHES = (16, 8, 4, 2, 1)  # of the grids of nodes, in points
_CUBIC = 4  # nodes along an axis that a value is interpolated from
# What remains of an error of interpolation at half the pitch: a cubic's falls by 4 where the second
# derivative is continuous (Matérn-3/2), by 16 where the fourth is; by 2 at a kink.
_REMAINS = 0.25
_WIDEST = 2.4  # lengthscales between the nodes of the coarsest grid, at most
# Where nodes lie farther apart (in lengthscales), errors do not yet fall with the pitch as they
# should: less is tolerated there.
_FINE, _LESS = 0.6, 0.125


@dataclass(frozen=True)
class Refined:
    """A change at the points of a lattice.

    Attributes:
        mean: change of the mean (C, R, K).
        variance: change of the variance (C, R, K).
        error: estimate of what interpolation misses (R, K): of the mean in predictive standard
            deviations, of the stddev relative to it, the larger one.
        evaluations: number of points where the change was evaluated.
    """

    mean: np.ndarray
    variance: np.ndarray
    error: np.ndarray
    evaluations: int


def refine(
    evaluate: Evaluate,
    variance: np.ndarray,
    noise_variance: float,
    near: np.ndarray,
    close: np.ndarray,
    points_per_length: float,
    tolerance: float,
    most: int,
) -> Refined | None:
    """Evaluate a change where that is needed, and interpolate it elsewhere.

    Args:
        evaluate: the change at points.
        variance: (C, R, K), the latent variance before the change.
        noise_variance: of one new measurement.
        near: (R, K) bool, points near new samples, where nodes are at most _FINE apart.
        close: (R, K) bool, points so close to new samples that each is evaluated: the valley of
            the variance along a path is as narrow as the noise is small.
        points_per_length: of the lattice, in a lengthscale of the map.
        tolerance: estimated error beyond which a finer grid is evaluated.
        most: evaluations beyond the two coarsest grids; where there would be more, those of the
            largest error come first.

    Returns:
        The change; None for a lattice too small, or too coarse, for three grids.
    """
    shape = near.shape
    pitches = [
        p
        for p in _PITCHES
        if min(len(_nodes(n, p)) for n in shape) >= _CUBIC and p <= _WIDEST * points_per_length
    ]
    if len(pitches) < 3:
        return None

    change = _Change(evaluate, variance, noise_variance)
    change.begin(*pitches[:2])
    for before, pitch in pairwise(pitches[1:]):
        fine = before <= _FINE * points_per_length
        flagged = change.error > tolerance * (1.0 if fine else _LESS)
        flagged |= close if fine else near
        most -= change.refine(before, pitch, flagged, close, most)
    return change.finished(pitches[-1])


class _Change:
    """A change on the grids evaluated so far.

    Args:
        evaluate: the change at points.
        variance: (C, R, K).
        noise_variance: of one new measurement.
    """

    def __init__(self, evaluate: Evaluate, variance: np.ndarray, noise_variance: float):
        self._evaluate, self._variance, self._noise = evaluate, variance, noise_variance
        self._shape = variance.shape[1:]
        self.error = np.full(self._shape, np.inf)
        self._done = np.zeros(self._shape, dtype=bool)

    def begin(self, first: int, second: int) -> None:
        """Evaluate the two coarsest grids at once: the first is part of the second.

        Args:
            first: pitch of the coarsest grid, points.
            second: pitch of the next one, half of it.
        """
        nodes = self._grid(second)
        rows, columns, points = _whole(*self._shape, second)
        exact = self._at(points)
        self._values = exact.reshape(2, -1, *map(len, nodes))

        part = (np.searchsorted(on, _nodes(n, first)) for on, n in zip(nodes, self._shape))
        guess = self._finer(self._values[(..., *np.ix_(*part))], first, second)
        missed = self._missed(nodes, guess[:, :, rows, columns], exact, rows, columns)
        self._estimate(nodes, missed.reshape(self._values.shape[2:]), second)

    def refine(
        self, before: int, pitch: int, flagged: np.ndarray, close: np.ndarray, most: int
    ) -> int:
        """Evaluate nodes of a finer grid.

        Args:
            before: pitch of the grid so far.
            pitch: of the finer one.
            flagged: (R, K) bool, where it is evaluated.
            close: (R, K) bool, points that come first.
            most: evaluations.

        Returns:
            How many there were.
        """
        nodes = self._grid(pitch)
        values, waiting = self._finer(self._values, before, pitch), flagged & ~self._done
        here = _on(waiting, nodes, pitch)
        at = np.flatnonzero(here)
        limited = len(at) > most
        # where no evaluation is left, the error stays what it was
        missed = np.where(here, _on(self.error, nodes, pitch) / _REMAINS, 0.0).ravel()
        if limited:
            urgent = np.where(_on(close, nodes, pitch).ravel()[at], np.inf, missed[at])
            at = at[np.argsort(-urgent, kind="stable")[: max(0, most)]]

        rows, columns = np.divmod(at, here.shape[1])
        self._values = values
        if len(at):
            guess = values[:, :, rows, columns]
            values[:, :, rows, columns] = exact = self._at((nodes[0][rows], nodes[1][columns]))
        # on the finest grid nothing lies between the nodes
        if pitch > 1 or limited:
            if len(at):
                missed[at] = self._missed(nodes, guess, exact, rows, columns)
            self._estimate(nodes, missed.reshape(here.shape), pitch, flagged)
        return len(at)

    def finished(self, pitch: int) -> Refined:
        """The change at all points, from the grid of a pitch."""
        values = self._values if pitch == 1 else self._finer(self._values, pitch, 1)
        error = np.where(self._done, 0.0, self.error)
        return Refined(*values, error, int(self._done.sum()))

    def _grid(self, pitch: int) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of rows and columns of the nodes."""
        rows, columns = (_nodes(n, pitch) for n in self._shape)
        return rows, columns

    def _at(self, points: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """The change at points, rows (n,) and columns (n,): (2, C, n)."""
        mean, variance = self._evaluate(*points)
        self._done[points] = True
        return np.stack([mean.T, variance.T])

    def _finer(self, values: np.ndarray, pitch: int, finer: int) -> np.ndarray:
        """Values (2, C, n, m) on a grid, interpolated to a finer one."""
        down, across = (_cubic(n, pitch, finer) for n in self._shape)
        parts = [(across @ (down @ part).T).T for part in values.reshape(-1, *values.shape[2:])]
        return np.stack(parts).reshape(*values.shape[:2], *parts[0].shape)

    def _missed(
        self,
        nodes,
        guess: np.ndarray,
        exact: np.ndarray,
        rows: np.ndarray,
        columns: np.ndarray,
    ) -> np.ndarray:
        """By how much guesses miss the values at nodes, in units of the error: (n,).

        Args:
            nodes: of the grid, at which values are set where they are known.
            guess: (2, C, n), interpolated.
            exact: (2, C, n), evaluated.
            rows: of the nodes (n,).
            columns: of the nodes (n,).
        """
        off = np.abs(guess - exact)
        after = self._variance[(..., *np.ix_(*nodes))] + self._values[1]
        # valleys of the variance along the path are narrow: the least of the neighbours counts
        after = _about(np.maximum(after, 1e-300), np.minimum)[:, rows, columns]
        return np.maximum(off[0] / np.sqrt(after + self._noise), 0.5 * off[1] / after).max(0)

    def _estimate(self, nodes, missed: np.ndarray, pitch: int, flagged=True) -> None:
        """Estimate the error between the nodes of a grid from what was missed at them."""
        reached = _about(missed, np.maximum)

        # the largest at the four nodes about a point
        largest = np.maximum(reached[:-1], reached[1:])
        largest = np.maximum(largest[:, :-1], largest[:, 1:])
        blocks = (
            np.minimum(np.arange(n) // pitch, len(on) - 2) for n, on in zip(self._shape, nodes)
        )
        rows, columns = blocks
        largest = largest.take(rows, 0).take(columns, 1)
        self.error = np.where(flagged, _REMAINS * largest, self.error)


def _on(values: np.ndarray, nodes, pitch: int) -> np.ndarray:
    """Values (R, K) at the nodes of a grid: (n, m)."""
    return values if pitch == 1 else values[np.ix_(*nodes)]


def _about(values: np.ndarray, pick) -> np.ndarray:
    """The largest (or as `pick` says) of each node (…, n, m) and the eight around it."""
    for axis in (-2, -1):
        source, values = np.moveaxis(values, axis, -1), values.copy()
        target = np.moveaxis(values, axis, -1)
        pick(target[..., 1:], source[..., :-1], out=target[..., 1:])
        pick(target[..., :-1], source[..., 1:], out=target[..., :-1])
    return values


@lru_cache(maxsize=64)
def _nodes(count: int, pitch: int) -> np.ndarray:
    """Numbers of the nodes among so many points: every pitch-th, and the last."""
    nodes = np.arange(0, count, pitch)
    return nodes if nodes[-1] == count - 1 else np.append(nodes, count - 1)


@lru_cache(maxsize=16)
def _whole(rows: int, columns: int, pitch: int):
    """All nodes of a grid, as the same arrays at every call, which nobody can write to.

    Returns:
        Row and column of each among the nodes, (n,) each, and the same two among the points.
    """
    nodes = _nodes(rows, pitch), _nodes(columns, pitch)
    which = np.ones(tuple(map(len, nodes)), dtype=bool).nonzero()
    points = tuple(on[index] for on, index in zip(nodes, which))
    for numbers in (*which, *points):
        numbers.flags.writeable = False
    return *which, points


@lru_cache(maxsize=64)
def _cubic(count: int, pitch: int, finer: int) -> csr_matrix:
    """Lagrange's cubic from the nodes of one pitch to those of a finer one, (n', n)."""
    nodes, points = _nodes(count, pitch), _nodes(count, finer)
    # the four nodes about a point, two on each side but at the ends
    first = np.clip(np.searchsorted(nodes, points, side="right") - 2, 0, len(nodes) - _CUBIC)
    which = first[:, None] + np.arange(_CUBIC)
    at = nodes[which].astype(float)

    weights = np.ones(which.shape)
    for k in range(_CUBIC):
        for j in range(_CUBIC):
            if j != k:
                weights[:, k] *= (points - at[:, j]) / (at[:, k] - at[:, j])
    rows = np.repeat(np.arange(len(points)), _CUBIC)
    return csr_matrix((weights.ravel(), (rows, which.ravel())), (len(points), len(nodes)))
