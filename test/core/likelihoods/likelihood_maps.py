"""Maps of classes, counts and gross errors, and data drawn for them."""

import numpy as np
import torch

from gp_mapping import Samples, create_map
from gp_mapping.core.models.dual_svgp.natural_gradient import refresh

KINDS = ("student_t", "censored", "bernoulli", "poisson", "softmax")
METRIC = ("student_t", "censored")
LIMITS = (-1.0, 1.2)
BASE = {
    "learn_hyperparameters": False,
    "learn_time_offset": False,
    "heading_stddev": 0.0,
    "lengthscale": 0.8,
    "signal_stddev": 1.5,
    "constant_stddev": 1.0,
    "inducing_tolerance": 1e-5,
    "inducing_information": 0.0,
    "field_scale": 1.0,
    "classes": 3,
    "lower_limit": LIMITS[0],
    "upper_limit": LIMITS[1],
}
PLACES = torch.from_numpy(np.random.default_rng(5).uniform(-0.5, 3.5, (30, 2)))


def build(kind, model="dual_svgp", **settings):
    """The prior's mean is 0, whatever comes first."""
    metric = {"noise_stddev": 0.3, "centre": [0.0]} if kind in METRIC else {}
    return create_map(model, likelihood=kind, **(BASE | metric | settings))


def data(kind, n, seed=0, errors=0.0, noise=0.3):
    """x (n, 2), y (n, 1) drawn from the likelihood about a smooth field."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 3, (n, 2))
    f = truth(x)
    y = {
        "student_t": lambda: f + rng.normal(0, noise, (n, 1)),
        "censored": lambda: np.clip(f + rng.normal(0, noise, (n, 1)), *LIMITS),
        "bernoulli": lambda: f + rng.normal(0, 1, (n, 1)) > 0,
        "poisson": lambda: rng.poisson(np.exp(f)),
        "softmax": lambda: np.argmax(np.hstack([f, -f, 0 * f]) + rng.gumbel(0, 1, (n, 3)), 1)[
            :, None
        ],
    }[kind]()
    gross = rng.random((n, 1)) < errors
    return x, np.where(
        gross, y + rng.uniform(4, 12, (n, 1)) * rng.choice([-1, 1], (n, 1)), y
    ).astype(float)


def truth(x):
    return 2 * np.sin(2 * x[:, :1]) * np.cos(1.5 * x[:, 1:])


def stream(field, x, y, size=10):
    for i in range(0, len(x), size):
        field.update(Samples(x[i : i + size], y[i : i + size]))
    return field


def settle(field, tolerance=1e-9):
    for _ in range(1500):
        if refresh(field) < tolerance:
            return
    raise AssertionError("the sweeps do not converge")
