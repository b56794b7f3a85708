"""Points that are exact as of an earlier moment of the map, brought up to now by what has changed.

The value of a point now is its value then and what samples have changed since, which a map may
compute for a fraction of the work of a prediction (FieldMap.since). From each kept moment to the
next the changes are found once, and added up for points that have waited for longer.

A sample changes a little of everything. Where a drawing has a budget that does not reach for all
points, it follows those near the newest samples, and of the others it looks at a few: where these
have drifted, their surroundings are followed, too.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from gp_mapping.core.field_map import FieldMap, Increments
from gp_mapping.core.types import Prediction
from gp_mapping.mapping.drawing.lattice import Lattice

__all__ = ["CHEAP", "DRIFT", "Follower"]

CHEAP = 6  # points that are brought up to date at the cost of one that is evaluated
# Predictive standard deviations of mean, or fraction of stddev, beyond which a point has changed.
DRIFT = 0.01
_MOMENTS = 6  # of the map, that are kept for points that wait
_RENEWED = 1000  # moments for which points are followed; then they are evaluated again
_WORTH = 96  # points from which on it pays to find what has changed
_PROBES = 128  # waiting points looked at in a drawing
_ROUNDS = 3  # and as many again, while some of them had drifted, this often at most
_MANY = 0.2  # of the probes: where so many have drifted, none of their moment waits any longer


class Follower:
    """Keeps the newest moments of a map as of which points of a lattice are exact.

    A moment is kept while points are exact as of it, at most _MOMENTS of them.

    Args:
        channels: of a prediction of f the one that is drawn (Renderer).
        seed: of the probes.
    """

    def __init__(self, channels: Callable[[FieldMap, Prediction], Prediction], seed: int):
        self._channels = channels
        self._random = np.random.default_rng(seed)
        # by the numbers of the kept moments, in order: what has changed up to each since the one
        # before it; None: not known
        self._steps: dict[int, Increments | None] = {}
        self._moment: object = None  # the newest
        self._latest: tuple[int, object, Increments | None] | None = None  # since the newest
        self._newest = self._renewed = 0

    def follow(
        self,
        lattice: Lattice,
        field: FieldMap,
        revision: int,
        noise_stddev: float,
        budget: int | None,
        oldest: bool,
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Bring points that are exact as of a kept moment up to now.

        Args:
            lattice: of the points.
            field: the map.
            revision: of the map.
            noise_stddev: of one new measurement, SI.
            budget: of the drawing, in points that are evaluated; None: all points are followed.
            oldest: whether those come first that have waited longest.

        Returns:
            Row and column indices of the points, part by part.
        """
        done: list[tuple[np.ndarray, np.ndarray]] = []
        if not self._steps or lattice.excess is not None:
            return done

        # rounding errors of increments must not add up for ever
        if self._newest - self._renewed >= _RENEWED:
            lattice.mark_exact_stale(revision)
            self._steps, self._renewed = {}, self._newest
            return done

        behind = self.knows(lattice) & (lattice.exact != self.now(field))
        changes = _Changes(lattice, self._steps, self._since_newest(field))
        most = None if budget is None else budget * (CHEAP - 1)
        if most is not None and np.count_nonzero(behind) > most:
            due = lattice.stale.copy()
            # a moment that would have to go leaves none of its points behind
            if len(self._steps) >= _MOMENTS:
                due |= lattice.exact == min(self._steps)
            behind &= due | self._drifted(lattice, changes, behind & ~due, noise_stddev)

        rows, columns = lattice.choose(most, oldest, behind)
        # the moment as of which each point is exact
        numbers = lattice.exact[rows, columns]
        for number, count in zip(*np.unique(numbers, return_counts=True)):
            if count >= _WORTH:
                part = numbers == number
                done.append(self._add(field, lattice, changes, number, rows[part], columns[part]))

        if any(len(part[0]) for part in done):
            # points that the increments do not cover are evaluated: many samples have come there
            lattice.stale[rows, columns] = True
            number = self.number(lattice, field)
            for part in done:
                lattice.exact[part], lattice.stale[part] = number, False
        return done

    def knows(self, lattice: Lattice) -> np.ndarray:
        """Which points (R, K) are exact as of a kept moment."""
        return np.isin(lattice.exact, np.fromiter(self._steps, np.int64, len(self._steps)))

    def now(self, field: FieldMap) -> int:
        """Number of the newest kept moment, where the map has not changed since; else 0."""
        moment = field.moment()
        return self._newest if self._steps and moment is not None and self._moment == moment else 0

    def number(self, lattice: Lattice, field: FieldMap) -> int:
        """Number of this moment, which is kept from now on; 0 where the map has none.

        Args:
            lattice: its points tell which moments are still needed.
            field: the map as it is now.
        """
        if lattice.excess is not None or field.moment() is None:
            return 0
        if not self.now(field):
            # moments of which no point is exact any more go, and the oldest beyond the bound
            used = set(np.unique(lattice.exact).tolist())
            kept = [number for number in self._steps if number in used]
            self._keep(kept[1 - _MOMENTS :], field)
        return self._newest

    def _keep(self, kept: list[int], field: FieldMap) -> None:
        """Keep these moments and the present one, which gets the next number."""
        newest = self._since_newest(field) if self._steps else None
        self._newest, self._moment = self._newest + 1, field.moment()

        # steps up to a moment that goes are added to the one up to the next
        before, self._steps = {**self._steps, self._newest: newest}, {}
        waiting: list[Increments | None] = []
        for number, step in before.items():
            waiting.append(step)
            if number in kept or number == self._newest:
                self._steps[number] = _sum(waiting) if self._steps else None
                waiting = []

    def _since_newest(self, field: FieldMap) -> Increments | None:
        """What has changed since the newest kept moment; found once."""
        latest = self._latest
        if latest is None or latest[0] != self._newest or latest[1] != field.moment():
            found = field.since(self._moment)
            self._latest = latest = (self._newest, field.moment(), found)
        return latest[2]

    def _drifted(
        self, lattice: Lattice, changes: _Changes, waiting: np.ndarray, noise_stddev: float
    ) -> np.ndarray:
        """Look at some waiting points, at random, for what has drifted.

        Args:
            lattice: of the points.
            changes: of the map.
            waiting: (R, K) bool, points that are not exact as of now.
            noise_stddev: SI.

        Returns:
            What lies around those that have drifted, (R, K) bool.
        """
        drifted = np.zeros_like(waiting)
        numbers, counts = np.unique(lattice.exact[waiting], return_counts=True)
        if not len(numbers):
            return drifted

        # of one moment in a drawing, since each has its price; of the largest most often
        number = int(self._random.choice(numbers, p=counts / counts.sum()))
        waiting = waiting & (lattice.exact == number)
        for _ in range(_ROUNDS):
            indices = np.flatnonzero(waiting & ~drifted)
            if len(indices) < _WORTH:
                break
            picked = self._random.choice(indices, min(_PROBES, len(indices)), replace=False)
            rows, columns = np.unravel_index(picked, waiting.shape)
            which = changes.drifted(number, rows, columns, noise_stddev)
            if which.mean() > _MANY:
                return drifted | waiting
            if not which.any():
                break
            drifted |= lattice.near(lattice.places(rows[which], columns[which]), lattice.length)
        return drifted

    def _add(
        self,
        field: FieldMap,
        lattice: Lattice,
        changes: _Changes,
        number: int,
        rows: np.ndarray,
        columns: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Add what has changed since a moment to points that are exact as of it.

        Args:
            field: the map.
            lattice: of the points.
            changes: of the map.
            number: of the moment.
            rows: (K,) of the points.
            columns: (K,) of the points.

        Returns:
            Row and column indices of those whose change is known.
        """
        told = changes.at(number, rows, columns)
        if told is None:
            lattice.exact[rows, columns] = 0
            return rows[:0], columns[:0]

        mean, variance, known = told
        which = known.cpu().numpy()
        # what is unknown since a moment stays unknown
        lattice.exact[rows[~which], columns[~which]] = 0
        rows, columns = rows[which], columns[which]

        # f alone is followed; what it stands for is computed from it
        if len(rows):
            old_values = (
                torch.from_numpy(part[: field.channels, rows, columns]).mT.to(mean)
                for part in (lattice.mean, lattice.variance)
            )
            mean, variance = (a + b[known] for a, b in zip(old_values, (mean, variance)))
            lattice.fill(
                rows,
                columns,
                self._channels(
                    field, Prediction(mean, variance.clamp_min(0.0), field.noise_variance())
                ),
            )
        return rows, columns


def _sum(steps: list[Increments | None]) -> Increments | None:
    """All changes of steps that follow one another; None where one of them is not known."""
    total, *later = steps
    for step in later:
        total = None if total is None or step is None else total.then(step)
    return total


class _Changes:
    """What has changed in a map since each kept moment; added up once a drawing.

    Args:
        lattice: of the points.
        steps: up to each kept moment from the one before, by number in order.
        last: from the newest kept moment to now.
    """

    def __init__(
        self, lattice: Lattice, steps: dict[int, Increments | None], last: Increments | None
    ):
        self._lattice = lattice
        self._numbers, self._steps = list(steps), [*list(steps.values())[1:], last]
        self._since: dict[int, Increments | None] = {}

    def at(
        self, number: int, rows: np.ndarray, columns: np.ndarray
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
        """Changes since a kept moment, at some points.

        Args:
            number: of the moment.
            rows: indices (K,) of the points' rows.
            columns: indices (K,) of their columns.

        Returns:
            Changes of mean, SI, and variance, SI², (K, C) each, and where they are known (K,); None
            where no change is known.
        """
        if number not in self._since:
            self._since[number] = _sum(self._steps[self._numbers.index(number) :])
        increments = self._since[number]
        return None if increments is None else increments(self._lattice.places(rows, columns))

    def drifted(
        self, number: int, rows: np.ndarray, columns: np.ndarray, noise_stddev: float
    ) -> np.ndarray:
        """Which points (K,) have changed by more than DRIFT; also those of unknown change.

        Args:
            number: of the moment as of which the points are exact.
            rows: indices (K,) of the points' rows.
            columns: indices (K,) of their columns.
            noise_stddev: of one new measurement, SI; the mean's change is compared with it as well.
        """
        told = self.at(number, rows, columns)
        if told is None:
            return np.ones(len(rows), dtype=bool)

        change, growth, known = (part.cpu().numpy() for part in told)
        old = self._lattice.variance[: change.shape[1], rows, columns].T
        new = np.maximum(old + growth, 0.0)

        drift = np.abs(change) > DRIFT * np.sqrt(new + noise_stddev**2)
        drift |= np.abs(np.sqrt(new) - np.sqrt(old)) > DRIFT * np.sqrt(new)
        return drift.any(1) | ~known
