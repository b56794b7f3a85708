"""A route made stop by stop, each the best gain per metre after those before: a seed."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from gp_mapping.planning.planners.point import NEAR
from gp_mapping.planning.problem import Problem
from gp_mapping.planning.worth.growing_path import GrowingPath

__all__ = ["greedy"]

_STOPS = 60
_FIRST = 4.0  # spacings of places: radius in which the best one is looked for first


def greedy(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Yield the route so far: the best gain per metre again and again, until the limit ends it.

    Each stop is chosen given what the way to those before it has measured.
    """
    travel, limit = problem.travel, problem.limit
    home = None if problem.home is None else travel.distances(problem.home)[travel.places]
    stops, at, spent = [], problem.start, problem.begin()

    goals, measured = problem.goals.copy(), GrowingPath(problem.value)
    gain = measured.remaining_gains.numpy()
    for _ in range(_STOPS):
        back, within = 0.0 if home is None else home, _FIRST * travel.spacing
        straight = np.hypot(*(travel.xy - travel.nodes[at]).T)

        # Lengths of ways are computed within a growing radius: most often the best one is near.
        while True:
            away = travel.distances(at, within)[travel.places]
            rate = np.where(
                goals & (travel.places != at) & (spent.metres + away + back <= limit.metres),
                gain / (away + NEAR),
                -np.inf,
            )

            best = int(rate.argmax())
            # Ways that were not found are longer than the radius and than the straight line.
            least = np.where(goals & np.isinf(away), np.maximum(straight, within), np.inf)
            if math.isinf(within) or rate[best] > (gain / (least + NEAR)).max():
                break  # what lies beyond has a lower rate
            within = 2.0 * within if spent.metres + within <= limit.metres else math.inf

        if not rate[best] > 0.0:
            break

        stop = int(travel.places[best])
        leg = travel.leg(at, stop) if stops else problem.first_leg(stop)
        then = None if leg is None else problem.after(spent, leg)
        if then is None or not problem.may_end(then, stop):
            # Its way is too long after all: try the next best one.
            goals[best] = False
            continue

        stops.append(stop)
        at, spent = stop, then
        measured.add(travel.visits([leg])[0])
        gain = measured.remaining_gains.numpy()
        yield tuple(stops)
    yield tuple(stops)
