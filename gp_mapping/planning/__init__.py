"""Where to measure next: the survey area, ways through it, worth of a path, planners by name."""

from gp_mapping.planning import planners  # registers those of this package
from gp_mapping.planning.acquisition import (
    ACQUISITIONS,
    integrated_variance_reduction,
    maximum_variance,
)
from gp_mapping.planning.area.polygon import Polygon
from gp_mapping.planning.area.survey_area import SurveyArea
from gp_mapping.planning.area.travel import Travel
from gp_mapping.planning.budget import Budget
from gp_mapping.planning.free_space import FreeSpace
from gp_mapping.planning.plan import Plan, after_driving, allot, plan, plan_steps
from gp_mapping.planning.problem import Problem
from gp_mapping.planning.registry import find_planner, planner_names, register
from gp_mapping.planning.suggest import Suggestion, Suggestions, suggest
from gp_mapping.planning.worth.path_value import PathValue
from gp_mapping.planning.worth.surface import variance_reduction_surface
from gp_mapping.planning.worth.weights import OBJECTIVES, cell_weights

__all__ = [
    "ACQUISITIONS",
    "OBJECTIVES",
    "Budget",
    "FreeSpace",
    "PathValue",
    "Plan",
    "Polygon",
    "Problem",
    "Suggestion",
    "Suggestions",
    "SurveyArea",
    "Travel",
    "after_driving",
    "allot",
    "cell_weights",
    "find_planner",
    "integrated_variance_reduction",
    "maximum_variance",
    "plan",
    "plan_steps",
    "planner_names",
    "planners",
    "register",
    "suggest",
    "variance_reduction_surface",
]
