"""What is left out where a robot did not get on: a goal, and ground ahead of it. No rclpy."""

from __future__ import annotations

import math

import numpy as np
import torch

from gp_mapping.planning.area.polygon import Polygon
from gp_mapping.planning.area.survey_area import SurveyArea
from gp_mapping.planning.budget import Budget
from gp_mapping.planning.plan import Plan
from gp_mapping.runtime.surveying.rules import Rules, RulesNow
from gp_mapping.runtime.surveying.way.course import Course
from gp_mapping.settings.node import NodeSettings

__all__ = ["leave_out", "way_home_remarks"]

_FINEST = 0.05  # m, cells of the ground where there is no free-space map
_CORNERS = 16  # of the polygon that stands for a disc
_DOUBLED = 3  # times that a disc is made twice as large, at most


def leave_out(
    rules: RulesNow, course: Course, position, place: tuple[float, float], settings: NodeSettings
) -> bool:
    """Leave out a place that was not reached, for plan_retry seconds.

    Where it lies on the plan that is driven, its next goal is left out, too: the place may be any
    pose of the plan, home included, and another plan would lead to that goal again. Where it lies
    right ahead of the robot, something is in the way that no free-space map shows: plans lead
    around a disc of radius plan_avoid there. For a robot that stands at such a disc again the next
    one is twice as large, so a long obstacle takes few attempts.

    Args:
        rules: in which it is left out.
        course: the plan that is driven, and how much of it is behind the robot.
        position: (2,) m, of the robot; None: not known.
        place: x and y, m.
        settings: plan_retry, plan_avoid and robot_radius.

    Returns:
        Whether something is right ahead of the robot that no free-space map shows.
    """
    s, rest = settings, course.rest
    rules.close(*place, s.plan_retry)
    if not rest:
        return False

    mark = rest.progress(place, 0.0, rest.metres)
    if math.dist(rest.line_ahead(mark)[0], place) > s.plan_avoid:
        return False  # it is not on the way

    goals = np.flatnonzero(rest.stop_marks[: len(rest.nodes)] >= mark - 1e-6)
    if len(goals) and math.dist(rest.stops[goals[0]], place) > s.plan_avoid:
        x, y = rest.stops[goals[0]]
        rules.close(float(x), float(y), s.plan_retry)

    if position is None or not 0.0 < math.dist(position, place) <= s.robot_radius + s.plan_avoid:
        return False
    _bar(rules, course, np.asarray(position), np.asarray(place), s)
    return True


def way_home_remarks(plan: Plan, budget: Budget, discs: int) -> str:
    """Say what is not as it should be on a way home, for the end of its reason.

    Args:
        plan: the way home; empty: there is none to drive.
        budget: what is left.
        discs: number of places where the robot did not get on and that plans lead around.

    Returns:
        In words; "" where nothing is in the way and the budget is enough.
    """
    if not plan:
        return ""
    words = ""
    if discs:
        words = f", around {discs} place{'s' * (discs > 1)} where the robot did not get on"
    if not budget.allows(plan.metres, plan.seconds):
        words += ", beyond the budget"
    return words


def _bar(
    rules: RulesNow, course: Course, position: np.ndarray, place: np.ndarray, s: NodeSettings
) -> None:
    """Have plans lead around a disc ahead of the robot, from its body on in the place's direction.

    It is smaller, or there is none, where no way would lead to the home of the plan any more.
    """
    resolution = _FINEST if course.basis.free is None else course.basis.free.resolution
    gap = s.robot_radius + 2.0 * resolution  # the robot's own cell stays one that it may enter
    ahead = (place - position) / math.dist(place, position)
    angles = np.arange(_CORNERS) * math.tau / _CORNERS
    corners = np.stack([np.cos(angles), np.sin(angles)], 1)

    near = [r for x, y, r in rules.barred if math.dist((x, y), position) <= r + gap + s.plan_avoid]
    radius = min(2.0 * max(near, default=0.5 * s.plan_avoid), 2.0**_DOUBLED * s.plan_avoid)
    while radius >= resolution:
        centre = position + (gap + radius) * ahead
        disc = Polygon(centre + radius * corners)
        if _leads_home(rules.now(), course, position, disc, s):
            rules.bar(disc, (*centre.tolist(), radius), s.plan_retry)
            return
        radius *= 0.5


def _leads_home(
    rules: Rules, course: Course, position: np.ndarray, disc: Polygon, s: NodeSettings
) -> bool:
    """Return whether a way leads from the robot to the home of its plan, if any, beside a disc."""
    free, home = course.basis.free, course.basis.home
    if home is None:
        return True
    if free is None:
        x = np.array([home])
        return not disc.contains(x)[0] and float(disc.distance(x)[0]) > s.robot_radius + _FINEST
    area = SurveyArea.from_free_space(
        free,
        position,
        region=rules.region,
        keep_out=(*rules.keep_out, disc),
        reach=s.plan_reach,
    )
    return bool(area) and bool(area.free.allows(torch.tensor([home], dtype=torch.float64)))
