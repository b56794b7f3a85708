"""A whole route within the budget or the horizon, improved by exact moves from the best of its seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.spatial import cKDTree

from gp_mapping.planning.planners.greedy import greedy
from gp_mapping.planning.planners.lanes import fitted, lane_routes
from gp_mapping.planning.problem import Problem

__all__ = ["route"]

_BATCH = 16  # routes rated together
_PATIENCE = 8  # batches without a better route after which the search ends


def route(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Lanes, greedy and the old route as seeds; then moves, each rated exactly; never worse than its seeds.

    The old route stays unless the new one is better by the share problem.gain. Deterministic for a given seed.
    """
    old = fitted(problem, tuple(s for s in problem.old if 0 <= s < len(problem.travel.nodes)))
    best, rating = old, problem.rate([old])[0] if old else -math.inf
    old_rating = rating
    if old:
        yield old

    if problem.fresh or not old:
        step = ()
        for step in greedy(problem):
            yield best or step
        seeds = {step: None}
        for lanes in lane_routes(problem):
            seeds[fitted(problem, lanes)] = None
            yield best or step
        seeds.pop((), None)
        for stops, value in zip(seeds, problem.rate(list(seeds))):
            if value > rating:
                best, rating = stops, value
    if not best:
        yield ()
        return

    worth_it = (1.0 + problem.gain) * old_rating
    for found, value in _improved(problem, best, rating):
        yield found if not old or value > worth_it else old


def _improved(problem: Problem, best: tuple[int, ...], rating: float) -> Iterator[tuple[tuple[int, ...], float]]:
    """Batches of moves from the best so far, until effort or patience ends."""
    moves = _Moves(problem)
    tried, waited = 0, 0
    seen = {best}
    yield best, rating
    residual = moves.residual(best)
    while tried < problem.effort and waited < _PATIENCE:
        batch = []
        for _ in range(4 * _BATCH):
            stops = moves.propose(best, residual)
            if stops and stops not in seen:
                seen.add(stops)
                batch.append(stops)
            if len(batch) == _BATCH:
                break
        if not batch:
            return
        tried += len(batch)
        ratings = problem.rate(batch)
        top = int(np.argmax(ratings))
        waited += 1
        if ratings[top] > rating * (1.0 + 1e-9):
            best, rating, waited = batch[top], ratings[top], 0
            residual = moves.residual(best)
        yield best, rating


class _Moves:
    """Neighbours of a route: shift, insert, drop, replace, move, reverse."""

    def __init__(self, problem: Problem):
        self.problem, self.travel = problem, problem.travel
        self.rng = np.random.default_rng(problem.seed)
        reached = self.travel.reachable(problem.start)
        if problem.closed is not None:
            reached = reached & ~problem.closed
        self._reached = np.flatnonzero(reached)
        self._tree = cKDTree(self.travel.nodes[self._reached])

    def residual(self, stops: tuple[int, ...]) -> np.ndarray:
        """(P,) probabilities of places to go to as well: by what they are still worth after the route."""
        visits = self.problem.drive(stops).visits
        left = self.problem.value.left(visits).numpy().clip(0.0)
        left = np.where(self.problem.goals, left, 0.0) ** 2
        return left / left.sum() if left.sum() > 0 else np.full(len(left), 1.0 / len(left))

    def propose(self, stops: tuple[int, ...], residual: np.ndarray) -> tuple[int, ...]:
        """One neighbour; made to fit the limit by leaving out stops that cost most."""
        rng, new = self.rng, list(stops)
        kind = rng.choice(6, p=(0.3, 0.25, 0.1, 0.15, 0.1, 0.1))
        i = int(rng.integers(len(new)))
        if kind == 0:
            new[i] = self._near(new[i])
        elif kind == 1:
            self._insert(new, self._wanted(residual))
        elif kind == 2:
            new.pop(i)
        elif kind == 3:
            new.pop(i)
            self._insert(new, self._wanted(residual))
        elif kind == 4:
            stop = new.pop(i)
            self._insert(new, stop, loosely=True)
        else:
            j = int(rng.integers(len(new)))
            low, high = min(i, j), max(i, j) + 1
            new[low:high] = new[low:high][::-1]
        return self._fitting(new)

    def _near(self, node: int) -> int:
        radius = self.travel.spacing * (1.0 + 2.0 * self.rng.random())
        near = self._tree.query_ball_point(self.travel.nodes[node], radius)
        return int(self._reached[self.rng.choice(near)]) if near else node

    def _wanted(self, residual: np.ndarray) -> int:
        return int(self.travel.places[self.rng.choice(len(residual), p=residual)])

    def _detours(self, stops: list[int], stop: int) -> np.ndarray:
        """Metres more, as the crow flies, for stop before each of stops and after the last: (K + 1,)."""
        x = self._line(stops)
        at = self.travel.nodes[stop]
        away = np.hypot(*(x - at).T)
        detour = away[:-1] + away[1:] - np.hypot(*np.diff(x, axis=0).T)
        return detour if self.problem.home is not None else np.append(detour, away[-1])

    def _line(self, stops: list[int]) -> np.ndarray:
        ends = [] if self.problem.home is None else [self.travel.nodes[[self.problem.home]]]
        return np.vstack([self.problem.position[None], self.travel.nodes[stops], *ends])

    def _insert(self, stops: list[int], stop: int, loosely: bool = False) -> None:
        detour = self._detours(stops, stop)
        if loosely:
            detour = detour + self.rng.exponential(self.travel.spacing, len(detour))
        stops.insert(int(detour.argmin()), stop)

    def _fitting(self, stops: list[int]) -> tuple[int, ...]:
        """Without repeats, and while it is clearly too long without the stop whose detour is longest, more or less."""
        stops = [s for i, s in enumerate(stops) if i == 0 or s != stops[i - 1]]
        limit = self.problem.limit
        most = min(limit.metres, limit.seconds * limit.speed)
        while len(stops) > 1:
            x = self._line(stops)
            length = np.hypot(*np.diff(x, axis=0).T)
            if length.sum() <= most:
                break
            saved = length[: len(stops)].copy()
            inner = slice(0, len(length) - 1)
            saved[: len(length) - 1] += length[1:] - np.hypot(*(x[2:] - x[:-2]).T)[inner]
            stops.pop(int((saved[: len(stops)] * self.rng.uniform(0.5, 1.0, len(stops))).argmax()))
        return tuple(stops)
