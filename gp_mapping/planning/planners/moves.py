"""Neighbours of a route: a stop shifted, inserted, dropped or replaced."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from gp_mapping.planning.problem import Problem

__all__ = ["Moves"]

# Cumulative probabilities of shift, insert and drop; replace has the remaining 3/16.
_SHARES = np.cumsum((0.375, 0.3125, 0.125))


class Moves:
    """Proposes routes near another one, the same ones for the same seed."""

    def __init__(self, problem: Problem):
        self.problem, self.travel = problem, problem.travel
        self.rng = np.random.default_rng(problem.seed)

        self._places = self.travel.places[problem.goals]
        reachable = self.travel.reachable(problem.start)
        self._nodes = np.flatnonzero(
            reachable if problem.closed is None else reachable & ~problem.closed
        )
        self._tree = cKDTree(self.travel.nodes[self._nodes])

        self._x = np.vstack([self.travel.nodes, problem.position])  # the robot is the last one
        self._home = () if problem.home is None else (problem.home,)

        self._wanted = np.arange(1.0, len(self._places) + 1.0)

        limit = problem.limit
        self._most = min(limit.metres, limit.seconds * limit.speed)
        self._straight = 1.0

    def prefer_gain(self, left: np.ndarray) -> None:
        """Prefer new stops where one more measurement gains more (P,), by the gain squared."""
        wanted = np.cumsum(left[self.problem.goals].clip(0.0) ** 2)
        if len(wanted) and wanted[-1] > 0.0:
            self._wanted = wanted

    def learn_winding(self, stops, metres: float) -> None:
        """Learn from a route how much longer ways are than straight lines.

        Others near it are taken to wind as much between their stops.

        Args:
            stops: its nodes, in order.
            metres: its length, m.
        """
        straight = float(_lengths(self._line(stops)).sum())
        self._straight = min(1.0, straight / metres) if metres > 0.0 else 1.0

    def propose(self, stops: tuple[int, ...]) -> tuple[int, ...]:
        """Return one neighbour; stops that cost most are left out until it about fits the limit."""
        rng, new = self.rng, list(stops)
        kind = int(np.searchsorted(_SHARES, rng.random()))

        i = int(rng.random() * len(new))

        if kind == 0:
            new[i] = self.shifted(new[i])
        elif kind == 1:
            self._insert(new, self._some())
        elif kind == 2:
            new.pop(i)
        else:
            new.pop(i)
            self._insert(new, self._some())

        return self._fitting(new)

    def shifted(self, node: int) -> int:
        """Return a random node near another one: a lane moves by less than two places' distance."""
        grain = self.travel.free.resolution * self.travel.block
        radius = grain + 2.0 * self.travel.spacing * self.rng.random()
        near = self._tree.query_ball_point(self.travel.nodes[node], radius)
        return int(self._nodes[near[int(self.rng.random() * len(near))]]) if near else node

    def _some(self) -> int:
        """Return a random place, more likely one with more left to gain.

        Where every place is closed it is any node that is not.
        """
        if not len(self._places):
            return int(self._nodes[int(self.rng.random() * len(self._nodes))])
        return int(
            self._places[np.searchsorted(self._wanted, self.rng.random() * self._wanted[-1])]
        )

    def _line(self, stops) -> np.ndarray:
        """Return the straight lines from the robot through stops, and home: (K, 2) m."""
        return self._x[[-1, *stops, *self._home]]

    def _insert(self, stops: list[int], stop: int) -> None:
        """Insert a stop where the way gets longer by least, as the crow flies."""
        x = self._line(stops)
        away = np.hypot(*(x - self.travel.nodes[stop]).T)

        detour = away[:-1] + away[1:] - _lengths(x)
        # Without a home the stop may come last.
        if self.problem.home is None:
            detour = np.append(detour, away[-1])
        stops.insert(int(detour.argmin()), stop)

    def _fitting(self, stops: list[int]) -> tuple[int, ...]:
        """Return the stops without repeats, shortened while they are clearly too long.

        The stop with the longest detour, with some randomness, is left out first.
        """
        stops = [s for i, s in enumerate(stops) if i == 0 or s != stops[i - 1]]
        # Straight lines are shorter than ways: the bound shrinks by as much as the last route
        # wound.
        longest = self._most * self._straight
        while len(stops) > 1:
            x = self._line(stops)
            length = _lengths(x)
            if length.sum() <= longest:
                break

            # What the route becomes shorter by without each stop.
            saved = length.copy()
            saved[:-1] += length[1:] - np.hypot(*(x[2:] - x[:-2]).T)
            saved = saved[: len(stops)] * self.rng.uniform(0.5, 1.0, len(stops))
            stops.pop(int(saved.argmax()))
        return tuple(stops)


def _lengths(x: np.ndarray) -> np.ndarray:
    """Return the lengths (K − 1,) m of the pieces of a line (K, 2) m."""
    return np.hypot(*(x[1:] - x[:-1]).T)
