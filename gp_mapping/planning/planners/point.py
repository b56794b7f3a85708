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

NEAR = 0.3  # m that are added to each way: places under the robot's feet are not infinitely cheap
_COMPARED = 24  # places that are compared by their whole ways
_KAPPA = 2.0  # standard deviations that an upper confidence bound adds


def next_stops(
    problem: Problem, score: Callable[[np.ndarray], np.ndarray], together: int = 1
) -> Iterator[int]:
    """The nodes of the places from which home is still in reach, those with the highest scores first.

    score: from the length (P,) m of the ways to all places to a value of each.  together: ways looked for at once.
    """
    travel = problem.travel
    away = travel.distances(problem.start)[travel.places]
    worth = np.where(problem.goals & (travel.places != problem.start), score(away), -math.inf)
    order = np.argsort(-worth, kind="stable")
    order = order[np.isfinite(worth[order])]
    if problem.budget.limited:
        # straightened ways are shorter than those over the grid, but not by so much
        back = 0.0 if problem.home is None else travel.distances(problem.home)[travel.places]
        order = order[(0.9 * (away + back) <= problem.budget.metres)[order]]
    for first in range(0, len(order), together):
        stops = [int(stop) for stop in travel.places[order[first : first + together]]]
        if problem.budget.limited:
            problem.prepare([(stop,) for stop in stops])
        yield from (stop for stop in stops if _fits(problem, stop))


def _fits(problem: Problem, stop: int) -> bool:
    """Whether the budget allows that stop and the way home from there; its horizon does not matter to one stop."""
    if not problem.budget.limited:
        return True
    drive = problem.drive((stop,))
    return drive is not None and problem.budget.allows(drive.metres, drive.seconds)


def _single(
    problem: Problem, score: Callable[[np.ndarray], np.ndarray]
) -> Iterator[tuple[int, ...]]:
    stop = next(next_stops(problem, score), None)
    yield () if stop is None else (stop,)


def gain_per_metre(problem: Problem) -> Iterator[tuple[int, ...]]:
    """The variance that driving to a place takes off the area, for each metre of the way there.

    Of the places whose own measurement pays most, that whose way does, by all that is measured on it: a way over what
    is known already is worth its end alone.
    """
    gain = problem.value.at(range(len(problem.value))).numpy()
    found = list(
        islice(next_stops(problem, lambda away: gain / (away + NEAR), _COMPARED), _COMPARED)
    )
    yield tuple(found[:1])
    if len(found) < 2:
        return

    problem.prepare([(stop,) for stop in found])
    legs = [problem.drive((stop,)).legs[0] for stop in found]
    brings = problem.value.gains([problem.travel.visits([leg])[0] for leg in legs])
    rates = [float(gains.sum()) / (leg.metres + NEAR) for gains, leg in zip(brings, legs)]
    yield (found[int(np.argmax(rates))],)


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
        raise ValueError(
            "this rule seeks high values: the problem needs mean and stddev of the places"
        )
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
