"""Points that are known as of the last drawing, brought up to now by what has changed since.

The value of a point now is its value then and what samples have changed since, which a map may
compute for a fraction of the work of a prediction (FieldMap.since).

A sample changes a little of everything. Where a drawing has a budget, changes are evaluated at few
points and interpolated elsewhere (refining.py), with an estimate of what that misses. These
estimates add up in a point's doubt; what is in doubt is evaluated again, the worst first.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from gp_mapping.core.device.transfers import to_processor
from gp_mapping.core.field_map import FieldMap, Increments
from gp_mapping.core.types import Prediction
from gp_mapping.mapping.drawing.lattice import Lattice, flat
from gp_mapping.mapping.drawing.refining import Refined, refine

__all__ = ["CHEAP", "DRIFT", "Follower"]

CHEAP = 6  # points that are brought up to date at the cost of one that is evaluated
# Predictive standard deviations of mean, or fraction of stddev, beyond which a point has changed.
DRIFT = 0.01
# Estimated error of one drawing beyond which a change is evaluated on a finer grid: a few drawings
# may add up to DRIFT, mostly many do.
_LIMIT = 0.02
_TOLERANCE = _LIMIT / 16.0
_CLOSE = 0.5  # lengthscales from new samples within which every point is evaluated
_RENEWED = 1000  # moments for which points are followed; then they are evaluated again
_WORTH = 96  # points from which on it pays to find what has changed


class Follower:
    """Keeps the moment of the map at the last drawing, as of which points of a lattice are known.

    Args:
        channels: of a prediction of f the one that is drawn (Renderer).
    """

    def __init__(self, channels: Callable[[FieldMap, Prediction], Prediction]):
        self._channels = channels
        self._moment: object = None
        self._number = self._renewed = 0  # of the moment, and of the last evaluation of all

    def knows(self, lattice: Lattice) -> np.ndarray:
        """Which points (R, K) are known as of the moment that is kept."""
        return (lattice.exact == self._number) & (self._number > 0)

    def number(self, lattice: Lattice, field: FieldMap) -> int:
        """Number of this moment, which is kept from now on; 0 where the map has none.

        Args:
            lattice: of the points; one with covariances of components is not followed.
            field: the map as it is now.
        """
        moment = field.moment()
        if lattice.excess is not None or moment is None:
            return 0
        if not self._number or self._moment != moment:
            self._number, self._moment = self._number + 1, moment
        return self._number

    def follow(
        self,
        lattice: Lattice,
        field: FieldMap,
        revision: int,
        noise_stddev: float,
        budget: int | None,
        x: torch.Tensor,
    ) -> float:
        """Bring points that are known as of the last drawing up to now.

        Args:
            lattice: of the points.
            field: the map.
            revision: of the map.
            noise_stddev: of one new measurement, SI.
            budget: of the drawing, in points that are evaluated; None: all points are followed.
            x: (N, 2) m, new samples.

        Returns:
            The work done, in points that are evaluated; 0 where nothing was followed.
        """
        known = self.knows(lattice)
        count = np.count_nonzero(known)
        if not count or budget == 0 or lattice.excess is not None:
            return 0.0

        # rounding errors of increments must not add up for ever; few points are evaluated as soon
        if self._number - self._renewed >= _RENEWED or count < _WORTH:
            self._renewed = self._number
            lattice.mark_exact_stale(revision)
            return 0.0

        # most drawings see no new sample: what is known is as of now
        if budget is not None and self._moment == field.moment():
            lattice.stale &= ~known | (lattice.doubt > _LIMIT)
            return 0.0

        change = field.since(self._moment)
        if budget is None or change is None:
            return self._follow_all(lattice, field, revision, change, known)
        close = lattice.near(x, _CLOSE * lattice.length)
        return self._follow_part(
            lattice, field, revision, noise_stddev, budget, change, known, close
        )

    def knows_now(self, lattice: Lattice, field: FieldMap) -> np.ndarray:
        """Which points (R, K) are known as of this moment.

        Args:
            lattice: with the points.
            field: the map.
        """
        return (
            self.knows(lattice)
            if self._number and self._moment == field.moment()
            else np.zeros_like(lattice.stale)
        )

    def _follow_all(
        self,
        lattice: Lattice,
        field: FieldMap,
        revision: int,
        change: Increments | None,
        known: np.ndarray,
    ) -> float:
        """Add a change to all known points; what is in doubt is evaluated again.

        Args:
            lattice: of the points.
            field: the map.
            revision: of the map.
            change: since the last drawing, or None.
            known: (R, K) bool.
        """
        doubtful = known & (lattice.doubt > 0.0)
        lattice.since[doubtful & ~lattice.stale] = revision
        lattice.stale |= doubtful
        lattice.exact[doubtful] = 0

        at, exact = np.flatnonzero(known & ~doubtful), flat(lattice.exact)
        exact[at] = 0  # what is unknown since a moment stays unknown
        if change is None or not len(at):
            return 0.0

        mean, variance, followed = to_processor(
            change(lattice.places(*np.divmod(at, known.shape[1])))
        )
        count = len(at)
        if not bool(followed.all()):
            at, mean, variance = at[followed.numpy()], mean[followed], variance[followed]
        self._add(lattice, field, at, mean, variance)
        exact[at] = self.number(lattice, field)
        return count / CHEAP

    def _follow_part(
        self,
        lattice: Lattice,
        field: FieldMap,
        revision: int,
        noise_stddev: float,
        budget: int,
        change: Increments,
        known: np.ndarray,
        close: np.ndarray,
    ) -> float:
        """Evaluate a change where it has to be, interpolate it elsewhere, and add it.

        Args:
            lattice: of the points.
            field: the map.
            revision: of the map.
            noise_stddev: SI.
            budget: in points that are evaluated.
            change: since the last drawing.
            known: (R, K) bool, of which points it is the change.
            close: (R, K) bool, points close to new samples.
        """
        refined = refine(
            lambda rows, columns: self._changes(lattice, field, change, known, rows, columns),
            lattice.variance[: field.channels],
            noise_stddev**2,
            lattice.stale & known,
            close & known,
            lattice.points_per_length,
            _TOLERANCE,
            budget * (CHEAP - 1),
        )
        if refined is None:
            return self._follow_all(lattice, field, revision, change, known)

        self._take(lattice, field, revision, refined, known)
        return refined.evaluations / CHEAP

    def _changes(
        self,
        lattice: Lattice,
        field: FieldMap,
        change: Increments,
        known: np.ndarray,
        rows: np.ndarray,
        columns: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Changes of mean and variance (n, C) at points.

        Args:
            lattice: of the points.
            field: the map.
            change: since the last drawing.
            known: (R, K) bool, points that are known as of then.
            rows: (n,) of the points.
            columns: (n,) of the points.
        """
        mean, variance, followed = (
            part.numpy() for part in to_processor(change(lattice.places(rows, columns)))
        )

        # next to a tile that has changed as a whole, whose change is not known
        anew = ~followed & known[rows, columns]
        if anew.any():
            which = rows[anew], columns[anew]
            now = field.predict(lattice.places(*which))
            mean[anew], variance[anew] = (
                part.cpu().numpy() - old[(slice(field.channels), *which)].T
                for part, old in ((now.mean, lattice.mean), (now.variance, lattice.variance))
            )
        return mean, variance

    def _take(
        self,
        lattice: Lattice,
        field: FieldMap,
        revision: int,
        refined: Refined,
        changed: np.ndarray,
    ) -> None:
        """Add a refined change to points, and to their doubt what it may miss.

        Args:
            lattice: of the points.
            field: the map.
            revision: of the map.
            refined: the change.
            changed: (R, K) bool, the points.
        """
        at = np.flatnonzero(changed)  # the numbers of the points: a mask would be slower
        stale, since, doubt, exact = map(
            flat, (lattice.stale, lattice.since, lattice.doubt, lattice.exact)
        )
        variances = flat(lattice.variance[: field.channels])
        was_stale, doubt_before, before = stale[at], doubt[at], variances.take(at, 1)
        mean, variance = (
            torch.from_numpy(flat(part).take(at, 1)).mT for part in (refined.mean, refined.variance)
        )
        self._add(lattice, field, at, mean, variance)

        # where the variance has fallen the same error is a larger fraction of it
        after = variances.take(at, 1)
        grown = np.divide(before, after, out=np.full_like(after, np.inf), where=after > 0.0).max(0)
        left = flat(refined.error)[at]
        doubted = doubt_before > 0.0
        left[doubted] += doubt_before[doubted] * np.maximum(grown[doubted], 1.0)
        left[np.isinf(grown)] = np.inf  # no variance is 0: interpolation went below it
        number = self.number(lattice, field)
        doubt[at], stale[at] = left, left > _LIMIT
        exact[at] = np.where(np.isfinite(left), number, 0)
        since[at[~was_stale]] = revision

    def _add(
        self,
        lattice: Lattice,
        field: FieldMap,
        at: np.ndarray,
        mean: torch.Tensor,
        variance: torch.Tensor,
    ) -> None:
        """Add changes to points.

        Args:
            lattice: of the points.
            field: the map.
            at: (n,) numbers of the points, counted row by row.
            mean: change of the mean (n, C), SI, in the processor's memory.
            variance: change of the variance (n, C), squared SI, likewise.
        """
        if not len(at):
            return

        # f alone is followed; what it stands for is computed from it
        mean, variance = (
            part + torch.from_numpy(flat(old[: field.channels]).take(at, 1)).mT
            for part, old in ((mean, lattice.mean), (variance, lattice.variance))
        )
        now = Prediction(mean, variance.clamp_min(0.0), field.noise_variance())
        lattice.fill_at(at, self._channels(field, now))
