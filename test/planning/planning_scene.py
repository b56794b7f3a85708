"""A small field that was measured along an L, and the same GP written out in numpy, as the judge."""

import math
from array import array
from types import SimpleNamespace

import numpy as np
import torch

from gp_mapping import Samples, create_map
from gp_mapping.mapping.drawing.grid import FieldGrid

LENGTHSCALE, SIGNAL, NOISE, CONSTANT = 0.8, 10e-6, 1e-6, 20e-6
SETTINGS = {
    "kernel": "matern52",
    "lengthscale": LENGTHSCALE,
    "signal_stddev": SIGNAL,
    "noise_stddev": NOISE,
    "constant_stddev": CONSTANT,
    "learn_hyperparameters": False,
}


def path() -> torch.Tensor:
    """(24, 2) metres: along y = 0.5, then up x = 2.5."""
    along, up = torch.linspace(0.2, 2.5, 12).double(), torch.linspace(0.6, 2.2, 12).double()
    return torch.cat(
        [
            torch.stack([along, torch.full_like(along, 0.5)], 1),
            torch.stack([torch.full_like(up, 2.5), up], 1),
        ]
    )


def measured_map(model: str, **settings):
    """A map of the path's measurements: fixed hyper-parameters, so that the numpy judge applies."""
    x = path()
    field = create_map(model, **SETTINGS | settings)
    field.update(Samples(x, 45e-6 + 8e-6 * torch.sin(2 * x[:, 0]) * torch.cos(x[:, 1])))
    return field


def grid_of(
    field, width: int = 12, height: int = 10, resolution: float = 0.25, origin=(0.0, 0.0)
) -> FieldGrid:
    """The map drawn cell by cell, as a session would."""
    blank = torch.zeros(height, width, dtype=torch.float64)
    prediction = field.predict(
        FieldGrid(origin, resolution, blank, blank, blank > 0, 0.0, 0).centres()
    )
    stddev = prediction.stddev[:, 0].reshape(height, width)
    return FieldGrid(
        origin,
        resolution,
        prediction.mean[:, 0].reshape(height, width),
        stddev,
        stddev < 0.8 * SIGNAL,
        float(prediction.noise_variance[0]) ** 0.5,
        1,
    )


def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Matérn-5/2 plus the constant, (N, K) T²."""
    r = np.sqrt(5) * np.linalg.norm(a[:, None] - b[None], axis=2) / LENGTHSCALE
    return SIGNAL**2 * (1 + r + r * r / 3) * np.exp(-r) + CONSTANT**2


def posterior(data: np.ndarray, at: np.ndarray, noise_variance: float = NOISE**2) -> np.ndarray:
    """Posterior covariance (N, N) at places `at` after measurements at data (n, 2)."""
    cross = kernel(data, at)
    return kernel(at, at) - cross.T @ np.linalg.solve(
        kernel(data, data) + noise_variance * np.eye(len(data)), cross
    )


def greedy(places: np.ndarray, k: int, kind: str) -> tuple[list[int], list[float]]:
    """Brute force: refit with each candidate in turn, keep the best, go on. Values are variances or summed drops."""
    data, chosen, values = path().numpy(), [], []
    for _ in range(k):
        now = np.diag(posterior(data, places))
        if kind == "variance":
            value = now.copy()
        else:
            value = np.array(
                [now.sum() - np.diag(posterior(np.vstack([data, p]), places)).sum() for p in places]
            )
        value[chosen] = -np.inf
        chosen.append(int(value.argmax()))
        values.append(float(value[chosen[-1]]))
        data = np.vstack([data, places[chosen[-1]]])
    return chosen, values


def occupancy(data, resolution=0.1, origin=(0.0, 0.0), yaw=0.0, frame="map"):
    """What a nav_msgs/OccupancyGrid looks like, array of int8 included."""
    data = np.asarray(data)
    pose = SimpleNamespace(
        position=SimpleNamespace(x=origin[0], y=origin[1], z=0.0),
        orientation=SimpleNamespace(x=0.0, y=0.0, z=math.sin(yaw / 2), w=math.cos(yaw / 2)),
    )
    info = SimpleNamespace(
        resolution=resolution, width=data.shape[1], height=data.shape[0], origin=pose
    )
    return SimpleNamespace(
        header=SimpleNamespace(frame_id=frame),
        info=info,
        data=array("b", data.astype(np.int8).tobytes()),
    )
