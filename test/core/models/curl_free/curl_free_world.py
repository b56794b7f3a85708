"""A field of dipoles below the floor, microtesla, and a drive over it."""

import numpy as np

DIPOLES = np.random.default_rng(8).uniform([-1.0, -1.0, -0.9], [4.0, 4.0, -0.6], (60, 3))
MOMENTS = np.random.default_rng(9).normal(0, 3.0, (60, 3))


def dipoles(x: np.ndarray) -> np.ndarray:
    """B (n, 3) of dipoles below the floor at x (n, 2 or 3): neither curl nor divergence."""
    x = np.pad(x, ((0, 0), (0, 3 - x.shape[1])))
    d = x[:, None] - DIPOLES
    r = np.linalg.norm(d, axis=2, keepdims=True)
    return np.array([18.0, -5.0, -42.0]) + (
        3 * d * (d * MOMENTS).sum(2, keepdims=True) / r**5 - MOMENTS / r**3
    ).sum(1)


def drive(n: int, seed: int = 0, size: float = 3.0, channels: int = 3):
    """As core_data.drive, the field one of dipoles."""
    rng = np.random.default_rng(seed)
    t, phase = np.linspace(0.0, n / 60.0, n), rng.uniform(0, 2 * np.pi, 2)
    x = size / 2 * np.stack([1 + np.sin(1.3 * t + phase[0]), 1 + np.sin(1.9 * t + phase[1])], 1)
    x += rng.normal(0, 0.003, x.shape)
    return x, dipoles(x) + rng.normal(0, 1, (n, 3))
