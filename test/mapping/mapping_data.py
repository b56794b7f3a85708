"""A drive past a known field, as a sensor would report it. Metres, seconds, tesla."""

import math

import numpy as np

from gp_mapping import Samples

UT = 1e-6


def field(x: np.ndarray) -> np.ndarray:
    """(N, 1) in tesla: 48 µT and a few smooth hills of about 10."""
    u, v = x[:, 0], x[:, 1]
    return (48 + 9 * np.sin(1.6 * u) * np.cos(1.2 * v) + 5 * np.cos(2.1 * v + 0.7 * u))[
        :, None
    ] * UT


def lawnmower(
    lanes: int = 4,
    length: float = 4.0,
    spacing: float = 0.8,
    speed: float = 0.2,
    rate: float = 50.0,
    origin=(0.0, 0.0),
    across: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Stamps (N,) and positions (N, 2) of a robot on straight lanes joined by short ones."""
    corners = []
    for i in range(lanes):
        ends = [(0.0, i * spacing), (length, i * spacing)]
        corners += ends if i % 2 == 0 else ends[::-1]
    corners = np.array(corners)
    if across:
        corners = corners[:, ::-1]
    distance = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(corners, axis=0), axis=1))])
    stamp = np.arange(0.0, distance[-1] / speed, 1.0 / rate)
    at = stamp * speed
    x = np.stack([np.interp(at, distance, corners[:, d]) for d in range(2)], 1) + np.asarray(origin)
    return stamp, x


def correlated_noise(
    n: int, seed: int, sd: float = 1.0, time: float = 0.5, rate: float = 50.0
) -> np.ndarray:
    """(n, 1) tesla: Ornstein-Uhlenbeck with that sd (µT) and correlation time, and white noise of .16 µT."""
    rng = np.random.default_rng(seed)
    keep, value, out = math.exp(-1.0 / (rate * time)), rng.normal(), np.empty(n)
    steps = rng.normal(size=n)
    for i in range(n):
        value = keep * value + math.sqrt(1 - keep**2) * steps[i]
        out[i] = value
    return (sd * out + 0.16 * rng.normal(size=n))[:, None] * UT


def drive(
    seed: int = 0, start: float = 100.0, noise: float = 1.0, rate: float = 50.0, **options
) -> Samples:
    """Samples of one pass with honest, that is correlated, noise."""
    stamp, x = lawnmower(rate=rate, **options)
    y = field(x) + correlated_noise(len(x), seed, noise, rate=rate)
    return Samples(x, y, stamp=start + stamp)
