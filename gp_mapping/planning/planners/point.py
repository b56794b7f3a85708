"""Rules that choose one place, and go there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
import torch

from gp_mapping.planning.problem import Problem

__all__ = [
    "NEAR",
    "expected_improvement",
    "gain_per_metre",
    "integrated_variance",
    "next_stops",
    "ucb",
    "variance",
]

NEAR = 0.3  # m added to each way: places under the robot's feet are not infinitely cheap
_COMPARED = 24  # places compared by all that is measured on the way
_KAPPA = 2.0  # standard deviations that an upper confidence bound adds


def next_stops(
    problem: Problem, score: Callable[[np.ndarray], np.ndarray], together: int = 1
) -> Iterator[int]:
    """Yield the nodes of places from which home is still in reach, highest scores first.

    Args:
        problem: the question.
        score: from the lengths (P,) m of the ways to all places to a value of each.
        together: ways computed at once.
    """
    travel = problem.travel
    distance = travel.distances(problem.start)[travel.places]
    ranking = np.where(problem.goals & (travel.places != problem.start), score(distance), -math.inf)

    order = np.argsort(-ranking, kind="stable")
    order = order[np.isfinite(ranking[order])]
    if problem.budget.limited:
        # Straightened ways are shorter than those over the grid, but not by a tenth.
        back = 0.0 if problem.home is None else travel.distances(problem.home)[travel.places]
        order = order[(0.9 * (distance + back) <= problem.budget.metres)[order]]

    for first in range(0, len(order), together):
        stops = [int(stop) for stop in travel.places[order[first : first + together]]]
        if problem.budget.limited:
            problem.prepare([(stop,) for stop in stops])
        yield from (stop for stop in stops if _fits(problem, stop))


def _fits(problem: Problem, stop: int) -> bool:
    """Return whether the budget allows that stop and the way home, whatever the horizon."""
    if not problem.budget.limited:
        return True
    drive = problem.drive((stop,))
    return drive is not None and problem.budget.allows(drive.metres, drive.seconds)


def _single(
    problem: Problem, score: Callable[[np.ndarray], np.ndarray]
) -> Iterator[tuple[int, ...]]:
    """Yield the stop with the highest score, or none."""
    stop = next(next_stops(problem, score), None)
    yield () if stop is None else (stop,)


def gain_per_metre(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Go where the way takes most variance off the area for each of its metres.

    Of the places whose own measurement gains most for its way, the one whose whole way does: a way
    over known ground is worth its end alone.
    """

    gain = problem.value.gains_at(range(len(problem.value))).numpy()
    candidates = list(
        islice(next_stops(problem, lambda away: gain / (away + NEAR), _COMPARED), _COMPARED)
    )
    yield tuple(candidates[:1])
    if len(candidates) < 2:
        return

    problem.prepare([(stop,) for stop in candidates])

    legs = [problem.first_leg(stop) for stop in candidates]
    gains_of_legs = problem.value.gains(problem.travel.visits_of_each(legs))
    rates = [float(gains.sum()) / (leg.metres + NEAR) for gains, leg in zip(gains_of_legs, legs)]
    yield (candidates[int(np.argmax(rates))],)


def integrated_variance(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Go where a measurement takes most variance off the area, at any distance."""
    gain = problem.value.gains_at(range(len(problem.value))).numpy()
    yield from _single(problem, lambda away: gain)


def variance(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Go to the place with the largest variance, at any distance."""
    spread = problem.value.C.diagonal().numpy()
    yield from _single(problem, lambda away: spread)


def _mean_and_stddev(problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and standard deviation (P,) of the places; ValueError where not given."""
    if problem.mean is None or problem.stddev is None:
        raise ValueError(
            "this rule seeks high values: the problem needs mean and stddev of the places"
        )
    return problem.mean, problem.stddev.clamp_min(1e-300)


def ucb(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Go to the highest upper confidence bound mean + 2 stddev: to find a source, not to map.

    Reference:
        Srinivas et al., 2010.
    """
    mean, stddev = _mean_and_stddev(problem)
    bound = (mean + _KAPPA * stddev).numpy()
    yield from _single(problem, lambda away: bound)


def expected_improvement(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Go where E[max(f − best, 0)] is highest for each metre of the way; best is the highest mean.

    Reference:
        Jones et al., 1998.
    """
    mean, stddev = _mean_and_stddev(problem)
    z = (mean - mean.max()) / stddev

    density = torch.exp(-0.5 * z.square()) / math.sqrt(2.0 * math.pi)
    below = 0.5 * (1.0 + torch.erf(z / math.sqrt(2.0)))

    value = (stddev * (z * below + density)).numpy()
    yield from _single(problem, lambda away: value / (away + NEAR))
