"""A floor, the ways on it and the worth of its places by formulas: no map is needed."""

import numpy as np
import torch
from planning_scene import occupancy

from gp_mapping.planning import FreeSpace
from gp_mapping.planning.area.travel import Travel
from gp_mapping.planning.problem import Problem
from gp_mapping.planning.worth.path_value import PathValue


def travel_in(wall=False) -> Travel:
    data = np.zeros((30, 40))
    if wall:
        data[:, 20] = 100
    return Travel(FreeSpace.from_occupancy_grid(occupancy(data, 0.1)), 0.4)


def worth(travel, weights=None) -> PathValue:
    """Of a smooth field, as a map that has measured nothing would give it; by the formulas."""
    x = travel.xy
    away = np.hypot(*(x[:, None] - x).transpose(2, 0, 1))
    C = torch.from_numpy(np.exp(-0.5 * (away / 0.6) ** 2))
    w = torch.ones(len(x)).double() if weights is None else torch.as_tensor(weights).double()
    return PathValue(
        C, C @ (w[:, None] * C), torch.full((len(x),), 0.1).double(), float(w.sum()), float(w.sum())
    )


def problem_in(travel, weights=None, **given) -> Problem:
    return Problem(worth(travel, weights), travel, np.array([0.45, 0.45]), **given)


def node(travel, x, y) -> int:
    return travel.locate((x, y))
