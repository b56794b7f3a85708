"""Random rooms with walls, doors and boxes, as occupancy grids."""

from itertools import pairwise

import numpy as np
import torch
from planning_scene import occupancy

from gp_mapping import Samples, create_map
from gp_mapping.planning import FreeSpace

RESOLUTION = 0.1


def room(seed: int, side: int = 50) -> np.ndarray:
    """(side, side) cells, 100 where occupied: an outer wall, up to three inner ones with a door each, boxes."""
    rng = np.random.default_rng(seed)
    data = np.zeros((side, side))
    data[[0, -1]] = 100
    data[:, [0, -1]] = 100
    for _ in range(rng.integers(0, 4)):
        at, door = rng.integers(8, side - 8), rng.integers(2, side - 10)
        wall = np.full(side, 100.0)
        wall[door : door + rng.integers(5, 10)] = 0
        if rng.random() < 0.5:
            data[at] = np.maximum(data[at], wall)
        else:
            data[:, at] = np.maximum(data[:, at], wall)
    for _ in range(rng.integers(0, 6)):
        row, column = rng.integers(1, side - 8, 2)
        data[row : row + rng.integers(2, 8), column : column + rng.integers(2, 8)] = 100
    return data


def free_room(seed: int, radius: float = 0.2, side: int = 50) -> FreeSpace:
    return FreeSpace.from_occupancy_grid(occupancy(room(seed, side), RESOLUTION), radius)


def somewhere(free: FreeSpace, seed: int = 0) -> np.ndarray:
    """An open place in the largest part of it."""
    x = free.centres()
    rng = np.random.default_rng(seed)
    tried = [x[i] for i in rng.choice(len(x), 8)]
    return max(tried, key=lambda p: free.reachable_from(p).open.sum())


def every_two_centimetres(line) -> np.ndarray:
    """(N, 2) places along a line (K, 2), corners included."""
    pieces = [
        np.linspace(a, b, max(2, int(np.ceil(np.hypot(*(b - a)) / 0.02)) + 1))
        for a, b in pairwise(line)
    ]
    return np.concatenate(pieces) if pieces else np.asarray(line)


def measured_at(here: np.ndarray, noise_stddev: float = 0.5e-6):
    """A map of one measurement at `here`, where the robot stands: (2,) m."""
    field = create_map(
        "exact",
        lengthscale=0.8,
        signal_stddev=10e-6,
        noise_stddev=noise_stddev,
        constant_stddev=5e-6,
        learn_hyperparameters=False,
    )
    field.update(Samples(torch.from_numpy(here[None]), torch.tensor([[45e-6]]).double()))
    return field
