"""The planners of this package; each is registered under its name."""

from gp_mapping.planning.planners.lanes import lanes
from gp_mapping.planning.planners.point import (
    expected_improvement,
    gain_per_metre,
    integrated_variance,
    ucb,
    variance,
)
from gp_mapping.planning.planners.route import route
from gp_mapping.planning.registry import register

__all__ = [
    "expected_improvement",
    "gain_per_metre",
    "integrated_variance",
    "lanes",
    "route",
    "ucb",
    "variance",
]

for planner in (
    gain_per_metre,
    lanes,
    route,
    variance,
    integrated_variance,
    ucb,
    expected_improvement,
):
    register(planner.__name__, planner)
