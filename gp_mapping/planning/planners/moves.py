"""Neighbours of a route: a stop shifted, put in, left out, replaced, moved; a part driven the other way round."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from gp_mapping.planning.problem import Problem

__all__ = ["Moves"]

# of shift, insert, drop, replace, move, reverse: their shares, summed up
_SHARES = np.cumsum((0.3, 0.25, 0.1, 0.15, 0.1, 0.1))


class Moves:
    """Proposes routes near another one, the same ones for the same seed."""

    def __init__(self, problem: Problem):
        self.problem, self.travel = problem, problem.travel
        # what is rated by its end alone may be driven in any order
        self._shares = _SHARES if problem.mix == 0.0 else _SHARES[:4] / _SHARES[3]
        self.rng = np.random.default_rng(problem.seed)
        self._places = self.travel.places[problem.goals]
        self._tree = cKDTree(self.travel.nodes[self._places])
        self._wanted = np.arange(1.0, len(self._places) + 1.0)
        limit = problem.limit
        self._most = min(limit.metres, limit.seconds * limit.speed)
        self._straight = 1.0

    def want(self, left: np.ndarray) -> None:
        """Go to where more is left (P,) to be gained by one measurement."""
        wanted = np.cumsum(left[self.problem.goals].clip(0.0) ** 2)
        if len(wanted) and wanted[-1] > 0.0:
            self._wanted = wanted

    def winding(self, stops, metres: float) -> None:
        """A route through stops is so long: others near it wind as much between their stops."""
        straight = float(np.hypot(*np.diff(self._line(stops), axis=0).T).sum())
        self._straight = min(1.0, straight / metres) if metres > 0.0 else 1.0

    def propose(self, stops: tuple[int, ...]) -> tuple[int, ...]:
        """One neighbour; made to fit the limit by leaving out stops that cost most."""
        rng, new = self.rng, list(stops)
        kind = int(np.searchsorted(self._shares, rng.random()))
        i = int(rng.random() * len(new))
        if kind == 0:
            new[i] = self._near(new[i])
        elif kind == 1:
            self._insert(new, self._some())
        elif kind == 2:
            new.pop(i)
        elif kind == 3:
            new.pop(i)
            self._insert(new, self._some())
        elif kind == 4:
            self._insert(new, new.pop(i), loosely=True)
        else:
            j = int(rng.random() * len(new))
            low, high = min(i, j), max(i, j) + 1
            new[low:high] = new[low:high][::-1]
        return self._fitting(new)

    def _near(self, node: int) -> int:
        radius = self.travel.spacing * (1.0 + 2.0 * self.rng.random())
        near = self._tree.query_ball_point(self.travel.nodes[node], radius)
        return int(self._places[near[int(self.rng.random() * len(near))]]) if near else node

    def _some(self) -> int:
        return int(self._places[np.searchsorted(self._wanted, self.rng.random() * self._wanted[-1])])

    def _line(self, stops) -> np.ndarray:
        ends = [] if self.problem.home is None else [self.travel.nodes[[self.problem.home]]]
        return np.vstack([self.problem.position[None], self.travel.nodes[list(stops)], *ends])

    def _insert(self, stops: list[int], stop: int, loosely: bool = False) -> None:
        """Where the way gets longer by least, as the crow flies."""
        x = self._line(stops)
        away = np.hypot(*(x - self.travel.nodes[stop]).T)
        detour = away[:-1] + away[1:] - np.hypot(*np.diff(x, axis=0).T)
        if self.problem.home is None:
            detour = np.append(detour, away[-1])
        if loosely:
            detour = detour + self.rng.exponential(self.travel.spacing, len(detour))
        stops.insert(int(detour.argmin()), stop)

    def _fitting(self, stops: list[int]) -> tuple[int, ...]:
        """Without repeats, and while it is clearly too long without the stop whose detour is longest, more or less."""
        stops = [s for i, s in enumerate(stops) if i == 0 or s != stops[i - 1]]
        most = self._most * self._straight
        while len(stops) > 1:
            x = self._line(stops)
            length = np.hypot(*np.diff(x, axis=0).T)
            if length.sum() <= most:
                break
            saved = length.copy()
            saved[:-1] += length[1:] - np.hypot(*(x[2:] - x[:-2]).T)
            saved = saved[: len(stops)] * self.rng.uniform(0.5, 1.0, len(stops))
            stops.pop(int(saved.argmax()))
        return tuple(stops)
