"""Settings of the survey: its budget, its end, its objective, and how plans are made."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gp_mapping.errors import named
from gp_mapping.settings.fields import setting

__all__ = ["PlanSettings", "home_of", "of_a_whole_survey"]

# what a survey that is started as a whole has, mapper and explorer and end, where nobody says else
_WHOLE = {"plan_home": "start", "save_on_exit": True}


def home_of(text: str) -> str | tuple[float, float] | None:
    """Parse plan_home.

    Returns:
        None, 'start', or a place (x, y), m.

    Raises:
        ValueError: it is none of these.
    """
    if text in ("none", ""):
        return None
    if text == "start":
        return text

    try:
        x, y = (float(part) for part in text.replace(",", " ").split())
    except ValueError:  # not two numbers: reported below, as what is not finite is
        x = y = math.nan
    if not (math.isfinite(x) and math.isfinite(y)):
        raise ValueError(
            f"plan_home: {named(text)} is not a place; expected none, start, or x and y in metres, for example "
            "'1.5 -2.0'"
        )
    return x, y


def of_a_whole_survey(states: Callable[[str], bool]) -> dict:
    """Return the mapper's parameters that a survey has which is started as a whole.

    Args:
        states: whether the user states a parameter of that name, in a file or an argument.
    """
    return {name: value for name, value in _WHOLE.items() if not states(name)}


@dataclass(frozen=True)
class PlanSettings:
    """Settings of ~/plan, ~/survey/start and explorer_node; all live but other_plans."""

    plan_kind: str = setting(
        "route",
        "planner of ~/plan: route (the whole budget or the horizon, improved move by "
        "move), lanes (up and down, over obstacles), gain_per_metre (one place at a time), or one "
        "that another package registers",
        live=True,
    )

    # what may be driven
    plan_budget: float = setting(
        0.0, "metres that a survey may drive; 0: no limit", "m", 0.0, 1e6, live=True
    )
    plan_budget_time: float = setting(
        0.0, "seconds that a survey may take; 0: no limit", "s", 0.0, 1e7, live=True
    )
    plan_home: str = setting(
        "none",
        "where the robot must be able to end at any time: none, start (where the survey "
        "began), or x and y in metres",
        live=True,
    )
    plan_speed: float = setting(
        0.3, "speed of the robot, of which seconds are made", "m/s", 1e-3, 100.0, live=True
    )
    plan_turn_rate: float = setting(
        1.0, "turn rate of the robot, of which seconds are made", "rad/s", 1e-3, 100.0, live=True
    )

    # the survey area
    plan_reach: float = setting(
        30.0,
        "how far from the robot the survey area goes, as the crow flies",
        "m",
        0.1,
        1e5,
        live=True,
    )
    plan_margin: float = setting(
        1.0,
        "without a free-space map and without a region the survey area is the hull of "
        "the path, grown by this",
        "m",
        0.0,
        1e4,
        live=True,
    )

    # how routes are chosen
    plan_horizon: float = setting(
        16.0, "how far a route looks ahead where no budget ends it", "m", 0.1, 1e5, live=True
    )
    plan_mix: float = setting(
        -1.0,
        "what a route is rated by: 0 what it brings in the end, 1 how soon it brings it, "
        "between: both; -1: 0.1 with a budget, 1 without one",
        "1",
        -1.0,
        1.0,
        live=True,
    )
    plan_interval: float = setting(
        2.0, "metres driven after which the plan is made anew", "m", 0.05, 1e4, live=True
    )
    plan_places: int = setting(
        450,
        "places that a plan knows at most; time and memory grow with the square",
        "",
        10,
        4000,
        live=True,
    )
    plan_effort: int = setting(
        64, "routes that one plan compares at most", "", 1, 100000, live=True
    )

    # what is to become known
    plan_objective: str = setting(
        "area",
        "what is to become known: all of the area alike; where the field is near "
        "plan_level; where it is above plan_level; where the map has been wrong more often "
        "than it said",
        choices=("area", "level_set", "hotspot", "local_scale"),
        live=True,
    )
    plan_level: float = setting(
        0.0, "level of the objectives level_set and hotspot", "SI", -1e15, 1e15, live=True
    )

    # how planning works
    plan_slice: float = setting(
        0.02,
        "longest that planning keeps the map from its messages at a time, one step of it "
        "more or less",
        "s",
        1e-3,
        1.0,
        live=True,
    )
    plan_retry: float = setting(
        60.0, "how long a goal that could not be reached is left out", "s", 0.0, 1e6, live=True
    )
    plan_avoid: float = setting(
        0.5, "how far around it goals are left out, too", "m", 0.01, 1e3, live=True
    )

    # when a survey ends
    target_stddev: float = setting(
        0.0,
        "a survey ends where target_share of the area is known this well; 0: no such end",
        "SI",
        0.0,
        1e9,
        live=True,
    )
    target_share: float = setting(
        0.95, "fraction of the area for target_stddev", "1", 0.01, 1.0, live=True
    )
    plan_least_gain: float = setting(
        0.0,
        "a survey ends where the best plan would take less than this fraction of the "
        "area's variance; 0: no such end",
        "1",
        0.0,
        1.0,
        live=True,
    )

    # other robots
    other_plans: str = setting(
        "",
        "topics with the plans of other robots (nav_msgs/Path), separated by commas: what "
        "they will measure is not measured twice; empty: those of merge_from; read when the "
        "node is activated",
    )
