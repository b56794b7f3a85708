"""A whole route within the budget or the horizon, improved from the best of its seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from gp_mapping.planning.planners.annealing import annealed
from gp_mapping.planning.planners.greedy import greedy
from gp_mapping.planning.planners.lanes import fitted, lane_routes
from gp_mapping.planning.planners.moves import Moves
from gp_mapping.planning.planners.spirals import spiral_routes
from gp_mapping.planning.problem import Problem

__all__ = ["route"]

_BATCH = 16  # routes rated together
_PATIENCE = 8  # batches without a better route after which the search ends
_LOOKS = 2  # routes that are looked at while one would be rated along its real ways
_LATE = (
    0.3  # mix up to which the end counts: it is searched by, and not given for what is known sooner
)


def route(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Lanes, spirals, greedy and the old route as seeds; then a search among their neighbours; no worse than its seeds.

    Where it is mostly the end that counts, how soon a route brings it decides only between routes that leave no more in
    the end than any lanes and the old route do. The old route stays unless the new one leaves less by the share
    problem.gain. Deterministic for a given seed.
    """
    late = problem.mix <= _LATE
    old = fitted(problem, tuple(s for s in problem.old if 0 <= s < len(problem.travel.nodes)))
    seeds = _Seeds(problem, old)
    if old:
        yield old
    if problem.fresh or not old:
        step = ()
        for step in greedy(problem):
            yield old or step
        lanes, spirals = [], []
        for stops in lane_routes(problem):
            lanes.append(fitted(problem, stops))
            yield old or step
        for stops in spiral_routes(problem) if late and problem.mix > 0.0 else ():
            spirals.append(fitted(problem, stops))
            yield old or step
        seeds.add([step, *lanes, *spirals])
        if late:
            seeds.leave_no_more_than(lanes)
    elif late:
        seeds.leave_no_more_than([])
    if not seeds.top[0]:
        yield ()
        return

    if not late:
        yield from _improved(problem, seeds)
        return
    for start in seeds.starts():
        found: list[tuple[int, ...]] = []
        for so_far in annealed(problem, start, _LOOKS * problem.effort):
            found = so_far
            yield seeds.best
        seeds.add(found)
    yield seeds.best


class _Seeds:
    """Routes (stops), with what they bring in the end and their ratings, and which of them is to be driven."""

    def __init__(self, problem: Problem, old: tuple[int, ...]):
        self.problem, self.old = problem, old
        self._least = -math.inf  # of what is brought in the end
        self._known: dict[tuple[int, ...], tuple[float, float]] = {}
        if old:
            self.add([old])

    def add(self, routes: Sequence[tuple[int, ...]]) -> None:
        """Know these, too."""
        new = [stops for stops in dict.fromkeys(routes) if stops and stops not in self._known]
        self._known.update(zip(new, self.problem.rate_both(new)))

    def leave_no_more_than(self, routes: list[tuple[int, ...]]) -> None:
        """From now on a route must bring as much in the end as these and the old one; as these, where they are clearly
        better than the old one.
        """
        most = max((self._known[stops][0] for stops in routes if stops), default=-math.inf)
        if self.old:
            end = self._known[self.old][0]
            most = most if most > self._clearly(end) else end
        self._least = most

    def _clearly(self, brought: float) -> float:
        return brought + self.problem.gain * max(1.0 - brought, 0.0)

    def _top(self, allowed: bool) -> tuple[int, ...]:
        found = (
            stops for stops, (end, _) in self._known.items() if end >= self._least or not allowed
        )
        return max(found, key=lambda stops: self._known[stops][1], default=())

    @property
    def top(self) -> tuple[tuple[int, ...], float]:
        """What is rated highest of those that leave no more, and its rating."""
        stops = self._top(allowed=True)
        return stops, self._known[stops][1] if stops else -math.inf

    def starts(self) -> list[tuple[int, ...]]:
        """The best, and what would be rated higher if it did not leave more in the end: its neighbours may not."""
        return list(dict.fromkeys([self._top(allowed=True), self._top(allowed=False)]))

    @property
    def best(self) -> tuple[int, ...]:
        """The best route; the old one where that is hardly worse, in the end or by its rating."""
        top = self._top(allowed=True)
        if not self.old or top == self.old or self._known[self.old][0] < self._least:
            return top
        (end, rating), (old_end, old_rating) = self._known[top], self._known[self.old]
        sooner = rating > self._clearly(old_rating)
        return (
            top
            if sooner or (self._least > -math.inf and end > self._clearly(old_end))
            else self.old
        )


def _improved(problem: Problem, seeds: _Seeds) -> Iterator[tuple[int, ...]]:
    """By how soon a route brings it: batches of neighbours of the best so far, until effort or patience ends."""
    best, rating = seeds.top
    moves = Moves(problem)
    tried, waited = 0, 0
    seen = {best}
    yield seeds.best
    moves.want(_left(problem, best))
    while tried < problem.effort and waited < _PATIENCE:
        batch = []
        for _ in range(4 * _BATCH):
            stops = moves.propose(best)
            if stops and stops not in seen:
                seen.add(stops)
                batch.append(stops)
            if len(batch) == _BATCH:
                break
        if not batch:
            return
        tried += len(batch)
        seeds.add(batch)
        waited += 1
        if seeds.top[1] > rating * (1.0 + 1e-9):
            (best, rating), waited = seeds.top, 0
            moves.want(_left(problem, best))
        yield seeds.best


def _left(problem: Problem, stops: tuple[int, ...]) -> np.ndarray:
    return problem.value.left(problem.drive(stops).visits).numpy()
