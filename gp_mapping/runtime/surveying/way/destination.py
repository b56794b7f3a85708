"""The place that a robot goes on to, by rules that choose one place at a time. No rclpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from gp_mapping.planning.plan import Plan, plan_steps, plan_through
from gp_mapping.planning.problem import Problem
from gp_mapping.runtime.surveying.way.course import Course

__all__ = ["destination", "steps_through"]

_NEARER = 0.5  # fraction of what is driven by which the way to the place has to become shorter


def destination(
    course: Course, problem: Problem, others, lead: float, moved: float, interval: float
) -> tuple[int, ...]:
    """Return the stop that the robot goes on to; none where another place may be chosen.

    It goes on until it is there, while the place is free, in reach and within the budget, no other
    robot is about to measure there, and the robot comes nearer: by half of what it drives, so that
    one that is blocked is asked anew, and none goes on to the same place for ever.

    Args:
        course: the plan that is driven.
        problem: the next one.
        others: lines (K, 2) m that other robots will drive.
        lead: metres that the robot drives before the next plan begins.
        moved: metres that it has moved in all.
        interval: metres between two plans.

    Returns:
        The node of the place, or nothing.
    """
    place = course.destination
    if place is None or problem.obstacle():
        return ()

    node = _node_at(place, problem)
    leg = None if node is None else problem.first_leg(node)
    if node is None or leg is None or leg.metres <= 0.0:
        return ()

    nearer = course.place_mark - (lead + leg.metres)
    driven = max(moved - course.moved_then, min(interval, course.place_mark))
    if nearer < _NEARER * driven:
        return ()

    spacing = problem.travel.spacing
    if any(_distance(place, line) < spacing for line in others if len(line) > 1):
        return ()
    if problem.budget.limited and problem.fitting((node,)) != 1:
        return ()
    return (node,)


def steps_through(
    stops: tuple[int, ...],
    problem: Problem,
    kind: str,
    steps: Callable[[Problem, str], Iterator[Plan | None]] = plan_steps,
) -> Iterator[Plan | None]:
    """Plan in slices; where stops are given, no others are looked for.

    Args:
        stops: nodes, in order, or none.
        problem: the question.
        kind: name of the planner.
        steps: of the planner, as plan_steps.
    """
    if stops:
        yield plan_through(problem, kind, stops)
    else:
        yield from steps(problem, kind)


def _node_at(place: np.ndarray, problem: Problem) -> int | None:
    """Return the node of the place of a problem that lies at another one's; None without one.

    New ground has other places: the nearest, as far away as places lie apart at most.
    """
    travel = problem.travel
    if not travel.free.allows(torch.from_numpy(place[None])).item():
        return None
    away = np.where(problem.goals, np.hypot(*(travel.xy - place).T), np.inf)
    nearest = int(away.argmin())
    return int(travel.places[nearest]) if away[nearest] <= travel.spacing else None


def _distance(x: np.ndarray, line: np.ndarray) -> float:
    """Return the distance of a place (2,) from a line (K, 2), m."""
    a, ahead = line[:-1], np.diff(line, axis=0)
    length = np.maximum((ahead**2).sum(1), 1e-12)
    fraction = (((x - a) * ahead).sum(1) / length).clip(0.0, 1.0)
    return float(np.hypot(*(a + fraction[:, None] * ahead - x).T).min())
