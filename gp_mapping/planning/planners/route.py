"""A whole route within the budget or the horizon, improved from the best of its seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from gp_mapping.planning.planners.annealing import annealed
from gp_mapping.planning.planners.greedy import greedy
from gp_mapping.planning.planners.lanes import fitted, lane_routes
from gp_mapping.planning.planners.moves import Moves
from gp_mapping.planning.problem import Problem

__all__ = ["route"]

_BATCH = 16  # routes rated together
_PATIENCE = 8  # batches without a better route after which the search ends
_LOOKS = 2  # routes that are looked at while one would be rated along its real ways
_LATE = 0.3  # mix up to which a search by what routes bring in the end finds those that also bring it soon


def route(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Lanes, greedy and the old route as seeds; then a search among their neighbours; never worse than its seeds.

    The old route stays unless the new one leaves less by the share problem.gain. Deterministic for a given seed.
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

    worth_it = old_rating + problem.gain * max(1.0 - old_rating, 0.0)
    search = _annealed if problem.mix <= _LATE else _improved
    for found, value in search(problem, best, rating):
        yield found if not old or value > worth_it else old


def _annealed(problem: Problem, best: tuple[int, ...], rating: float) -> Iterator[tuple[tuple[int, ...], float]]:
    """Looked at by what a route brings in the end; the best of them rated."""
    found: list[tuple[int, ...]] = []
    for so_far in annealed(problem, best, _LOOKS * problem.effort):
        found = so_far
        yield best, rating
    for stops, value in zip(found, problem.rate(found)):
        if value > rating:
            best, rating = stops, value
    yield best, rating


def _improved(problem: Problem, best: tuple[int, ...], rating: float) -> Iterator[tuple[tuple[int, ...], float]]:
    """By how soon a route brings it: batches of neighbours of the best so far, until effort or patience ends."""
    moves = Moves(problem)
    tried, waited = 0, 0
    seen = {best}
    yield best, rating
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
        ratings = problem.rate(batch)
        top = int(np.argmax(ratings))
        waited += 1
        if ratings[top] > rating * (1.0 + 1e-9):
            best, rating, waited = batch[top], ratings[top], 0
            moves.want(_left(problem, best))
        yield best, rating


def _left(problem: Problem, stops: tuple[int, ...]) -> np.ndarray:
    return problem.value.left(problem.drive(stops).visits).numpy()
