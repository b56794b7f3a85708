"""Rules that choose one place, and go there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch

from gp_mapping.planning.problem import Problem

__all__ = ["NEAR", "expected_improvement", "gain_per_metre", "integrated_variance", "next_stop", "ucb", "variance"]

NEAR = 0.3  # m that are added to each way: places under the robot's feet are not infinitely cheap
_KAPPA = 2.0  # standard deviations that an upper confidence bound adds


def next_stop(problem: Problem, score: Callable[[np.ndarray], np.ndarray]) -> int | None:
    """The node of the place with the highest score from which home is still in reach; None where there is none.

    score: from the length (P,) m of the ways to all places to a value of each.
    """
    travel = problem.travel
    away = travel.distances(problem.start)[travel.places]
    worth = np.where(problem.goals & (travel.places != problem.start), score(away), -math.inf)
    for place in np.argsort(-worth, kind="stable"):
        if not np.isfinite(worth[place]):
            return None
        stop = int(travel.places[place])
        if _fits(problem, away[place], stop):
            return stop
    return None


def _fits(problem: Problem, away: float, stop: int) -> bool:
    """Whether the budget allows that stop and the way home from there; its horizon does not matter to one stop."""
    if not problem.budget.limited:
        return True
    back = 0.0 if problem.home is None else problem.travel.distances(problem.home)[stop]
    if 0.9 * (away + back) > problem.budget.metres:  # straightened ways are shorter, but not by so much
        return False
    drive = problem.drive((stop,))
    return drive is not None and problem.budget.allows(drive.metres, drive.seconds)


def _single(problem: Problem, score: Callable[[np.ndarray], np.ndarray]) -> Iterator[tuple[int, ...]]:
    stop = next_stop(problem, score)
    yield () if stop is None else (stop,)


def gain_per_metre(problem: Problem) -> Iterator[tuple[int, ...]]:
    """The variance that a measurement takes off the area, for each metre of the way there."""
    gain = problem.value.at(range(len(problem.value))).numpy()
    yield from _single(problem, lambda away: gain / (away + NEAR))


def integrated_variance(problem: Problem) -> Iterator[tuple[int, ...]]:
    """The variance that a measurement takes off the area, however far it is."""
    gain = problem.value.at(range(len(problem.value))).numpy()
    yield from _single(problem, lambda away: gain)


def variance(problem: Problem) -> Iterator[tuple[int, ...]]:
    """The place that is known least, however far it is."""
    spread = problem.value.C.diagonal().numpy()
    yield from _single(problem, lambda away: spread)


def _said(problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    if problem.mean is None or problem.stddev is None:
        raise ValueError("this rule seeks high values: the problem needs mean and stddev of the places")
    return problem.mean, problem.stddev.clamp_min(1e-300)


def ucb(problem: Problem) -> Iterator[tuple[int, ...]]:
    """The upper confidence bound mean + 2 stddev: for those who seek a source, not a map (Srinivas et al. 2010)."""
    mean, stddev = _said(problem)
    bound = (mean + _KAPPA * stddev).numpy()
    yield from _single(problem, lambda away: bound)


def expected_improvement(problem: Problem) -> Iterator[tuple[int, ...]]:
    """E[max(f − best, 0)] over the best mean so far, for each metre of the way (Jones et al. 1998)."""
    mean, stddev = _said(problem)
    z = (mean - mean.max()) / stddev
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2.0 * math.pi)
    below = 0.5 * (1.0 + torch.erf(z / math.sqrt(2.0)))
    value = (stddev * (z * below + density)).numpy()
    yield from _single(problem, lambda away: value / (away + NEAR))
