"""Rules that choose one place, and go there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch

from gp_mapping.planning.problem import Problem

__all__ = [
    "GO_ON",
    "NEAR",
    "expected_improvement",
    "gain_per_metre",
    "integrated_variance",
    "next_stops",
    "ucb",
    "variance",
]

NEAR = 0.3  # m added to each way: places under the robot's feet are not infinitely cheap
# Rules whose place is driven to before they choose the next one. What is measured on the way takes
# variance off it, but says of no other place that it is better. Rules that seek high values learn
# on the way where these are, and choose anew.
GO_ON = frozenset({"gain_per_metre", "integrated_variance", "variance"})
_KAPPA = 2.0  # standard deviations that an upper confidence bound adds


def next_stops(problem: Problem, score: Callable[[np.ndarray], np.ndarray]) -> Iterator[int]:
    """Yield the nodes of places from which home is still in reach, highest scores first.

    Args:
        problem: the question.
        score: from the lengths (P,) m of the ways to all places to a value of each.
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

    stops = map(int, travel.places[order])
    yield from (stop for stop in stops if _fits(problem, stop))


def _fits(problem: Problem, stop: int) -> bool:
    """Return whether the budget allows that stop and the way home, whatever the horizon."""
    return not problem.budget.limited or problem.fitting((stop,)) == 1


def _single(
    problem: Problem, score: Callable[[np.ndarray], np.ndarray]
) -> Iterator[tuple[int, ...]]:
    """Yield the stop with the highest score, or none."""
    stop = next(next_stops(problem, score), None)
    yield () if stop is None else (stop,)


def gain_per_metre(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Go where a measurement takes most variance off the area for each metre of the way there.

    What is measured on the way does not count: where it did, ways were longer and straighter, left
    as much variance, and the map, which learns its hyper-parameters on them, erred by more.
    """
    gain = problem.value.gains_at(range(len(problem.value))).numpy()
    yield from _single(problem, lambda away: gain / (away + NEAR))


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
