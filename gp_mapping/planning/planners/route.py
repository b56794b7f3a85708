"""A whole route within the budget or the horizon, improved from the best of its seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from gp_mapping.planning.planners.annealing import annealed
from gp_mapping.planning.planners.bending import Bend, bent
from gp_mapping.planning.planners.greedy import greedy
from gp_mapping.planning.planners.lanes import (
    fitted,
    fitted_in_groups,
    lane_routes,
)
from gp_mapping.planning.planners.moves import Moves
from gp_mapping.planning.planners.spirals import spiral_routes
from gp_mapping.planning.problem import Problem
from gp_mapping.planning.registry import anytime

__all__ = ["route"]

_BATCH = 16  # routes rated together
_SOONEST = 2  # lanes that the first answer is one of: one for each direction
_RATED = 1000  # places, of all seeds together that are rated between two slices
_PATIENCE = 8  # batches without a better route after which the search ends
_LOOKS = 2  # approximate routes that cost as much as one rated along its exact ways
_PER_BEND = 4  # of the effort for one gradient of a route
_BENDS = 40  # gradients at most
# Mix up to which the final gain is searched for, and not traded for earlier gains.
_LATE = 0.3
_NEAR = 1.25  # ratio of variances left up to which one route leaves little more than another


@anytime
def route(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Improve the best of several seeds; the result is no worse than any of them.

    In the end it is bent as a whole. What that gains is judged by denser measurements than all
    else, so by those of the seeds it may be worth a little less.

    Seeds are lanes, spirals, a greedy route and the old one. Where mostly the end counts, how soon
    a route gains decides only between routes that leave no more in the end than any lanes and the
    old route do. The old route stays unless the new one leaves less by the fraction problem.gain.
    Deterministic for a given seed.

    The first answer is the old route or, of the seeds, the best of those that are found soonest.
    """
    late = problem.mix <= _LATE
    old = fitted(problem, tuple(s for s in problem.old if 0 <= s < len(problem.travel.nodes)))

    seeds = _Seeds(problem, old)
    if old:
        yield old

    if problem.fresh or not old:
        # What is found soonest: a few lanes where the end counts, else the greedy route.
        of_lanes = lane_routes(problem)
        lanes = []
        for group in fitted_in_groups(problem, islice(of_lanes, _SOONEST if late else 0)):
            lanes += group
            yield seeds.best
        yield from seeds.answers(seeds.add_in_groups(lanes))

        greedy_route = ()
        for stops in greedy(problem):
            greedy_route = stops
            yield seeds.best
        yield from seeds.answers(seeds.add_in_groups([greedy_route]))

        for group in fitted_in_groups(problem, of_lanes):
            lanes += group
            yield seeds.best
        yield from seeds.answers(seeds.add_in_groups(lanes))

        if late:
            seeds.leave_no_more_than(lanes)
        for stops in spiral_routes(problem, seeds.near) if late and problem.mix > 0.0 else ():
            seeds.add([fitted(problem, stops)])
            yield seeds.best
    elif late:
        seeds.leave_no_more_than([])

    if not seeds.top[0]:
        yield ()
        return

    # An early gain is improved along exact ways, a final one by annealing over approximate ways.
    if not late:
        yield from _improved(problem, seeds)
        return
    # Annealing begins at one or two routes, which share the effort.
    starts = seeds.starts()
    for start in starts:
        routes: list[tuple[int, ...]] = []
        for so_far in annealed(problem, start, _LOOKS * problem.effort // len(starts)):
            routes = so_far
            yield seeds.best
        yield from seeds.answers(seeds.add_in_groups(routes))

    # The old route was bent before.
    start, share = seeds.top[0], _PER_BEND if problem.fresh or not old else 2 * _PER_BEND
    bend = Bend()
    for so_far in bent(problem, start, min(_BENDS, max(1, problem.effort // share)), old):
        bend = so_far
        yield seeds.best
    seeds.add_bent(start, bend)
    yield seeds.best


class _Seeds:
    """Routes (stops) with their final gains and ratings, and the choice among them."""

    def __init__(self, problem: Problem, old: tuple[int, ...]):
        self.problem, self.old = problem, old
        self._least = -math.inf  # final gain that a route needs to be allowed
        self._known: dict[tuple[int, ...], tuple[float, float]] = {}
        if old:
            self.add([old])

    def add(self, routes: Sequence[tuple[int, ...]]) -> None:
        """Rate these routes, where they are new, and remember them."""
        new = [stops for stops in dict.fromkeys(routes) if stops and stops not in self._known]
        self._known.update(zip(new, self.problem.rate_both(new)))

    def add_in_groups(self, routes: Sequence[tuple[int, ...]]) -> Iterator[None]:
        """Add these routes, a few at a time: between two groups the map is served."""
        together = max(1, _RATED // len(self.problem.value))
        for first in range(0, len(routes), together):
            self.add(routes[first : first + together])
            yield

    def add_bent(self, start: tuple[int, ...], bend: Bend) -> None:
        """Add a bent route, rated by what it gains more than the one that it was bent from.

        That is measured more densely than others are: half of what a bend gains lies between the
        measurements of ordinary ratings. So does what the old route gained when it was bent.

        Args:
            start: the route (stops) that was bent, one that is known.
            bend: what came of it.
        """
        self.add([bend.stops])
        start_end, total = self._known[start][0], max(self.problem.value.total, 1e-300)
        for stops, more in {bend.stops: bend.more, self.old: bend.more_of_old}.items():
            end, rating = self._known.get(stops, (-math.inf, -math.inf))
            if more != 0.0 and end > -math.inf:
                self._known[stops] = end, rating + more / total - (end - start_end)

    def leave_no_more_than(self, routes: list[tuple[int, ...]]) -> None:
        """Allow only routes whose final gain is at least that of the best of these.

        With an old route its final gain is the bound instead, unless these are clearly better.
        """
        required = max((self._known[stops][0] for stops in routes if stops), default=-math.inf)
        if self.old:
            old_gain = self._known[self.old][0]
            required = required if required > self._clearly(old_gain) else old_gain
        self._least = required

    def near(self, stops: tuple[int, ...]) -> bool:
        """Return whether as much of a route as fits leaves little more than is allowed."""
        stops = fitted(self.problem, stops)
        self.add([stops])
        return bool(stops) and 1.0 - self._known[stops][0] <= _NEAR * (1.0 - self._least)

    def _clearly(self, gained: float) -> float:
        """Return the final gain that is clearly better than another one."""
        return gained + self.problem.gain * max(1.0 - gained, 0.0)

    def _top(self, allowed: bool) -> tuple[int, ...]:
        """Return the stops with the highest rating, of the allowed routes or of all."""
        candidates = (
            stops for stops, (end, _) in self._known.items() if end >= self._least or not allowed
        )
        return max(candidates, key=lambda stops: self._known[stops][1], default=())

    @property
    def top(self) -> tuple[tuple[int, ...], float]:
        """The allowed route with the highest rating, and that rating."""
        stops = self._top(allowed=True)
        return stops, self._known[stops][1] if stops else -math.inf

    def starts(self) -> list[tuple[int, ...]]:
        """Return where to search from: the best allowed route, and the highest rated of all.

        The latter leaves more in the end, but its neighbours may not.
        """
        return list(dict.fromkeys([self._top(allowed=True), self._top(allowed=False)]))

    def answers(self, steps: Iterator[None]) -> Iterator[tuple[int, ...]]:
        """Yield the best route after each of these steps."""
        for _ in steps:
            yield self.best

    @property
    def best(self) -> tuple[int, ...]:
        """The best allowed route, or the old one where that is hardly worse in gain or rating."""
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
    """Improve by how soon a route gains, until effort or patience ends.

    Batches of neighbours of the best route so far are rated along exact ways. Yields the best
    route.
    """
    best, rating = seeds.top
    moves = Moves(problem)

    tried, without_success = 0, 0
    seen = {best}
    yield seeds.best

    moves.prefer_gain(_marginal_gain(problem, best))
    while tried < problem.effort and without_success < _PATIENCE:
        batch = []
        # Many proposals repeat routes seen before: a batch ends after four times its size.
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
        without_success += 1
        if seeds.top[1] > rating * (1.0 + 1e-9):
            (best, rating), without_success = seeds.top, 0
            moves.prefer_gain(_marginal_gain(problem, best))
        yield seeds.best


def _marginal_gain(problem: Problem, stops: tuple[int, ...]) -> np.ndarray:
    """Return the gain (P,) of one more measurement at each place after driving through stops."""
    return problem.value.remaining_gains(problem.drive(stops).visits).numpy()
