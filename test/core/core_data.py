"""Textbook Gaussian processes in NumPy, written without the core, and data for tests. Values in microtesla, metres."""

import numpy as np
import torch
from scipy.linalg import solve_triangular

from gp_mapping import Samples
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.linalg import cholesky
from gp_mapping.core.scaling import Scaling
from gp_mapping.core.sparse.basis import whiten
from gp_mapping.core.sparse.posterior import Posterior

UT = 1e-6  # tesla
# ℓ, s, s_p, s_c: the tests' usual hyper-parameters, as settings (SI) and, in microtesla, as THETA
SETTINGS = {
    "lengthscale": 0.5,
    "signal_stddev": 10 * UT,
    "noise_stddev": 1 * UT,
    "constant_stddev": 20 * UT,
    "heading_stddev": 0.0,
    "kernel": "matern52",
    "learn_hyperparameters": False,
    "learn_time_offset": False,
}
THETA = {"name": "matern52", "length": 0.5, "signal": 10.0, "constant": 20.0}


def correlation(name: str, r: np.ndarray) -> np.ndarray:
    """Rasmussen and Williams (2006), eqs. 4.9 and 4.17."""
    if name == "rbf":
        return np.exp(-0.5 * r**2)
    if name == "matern12":
        return np.exp(-r)
    if name == "matern32":
        return (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r)
    if name == "matern52":
        return (1 + np.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-np.sqrt(5) * r)
    if name == "matern72":
        q = np.sqrt(7) * r
        return (1 + q + 2 * q**2 / 5 + q**3 / 15) * np.exp(-q)
    return (1 + 3 * r + 27 * r**2 / 7 + 18 * r**3 / 7 + 27 * r**4 / 35) * np.exp(-3 * r)


def covariance(a, b, name="matern52", length=0.5, signal=10.0, **_) -> np.ndarray:
    """s² ρ(|a − b|/ℓ), without the constant."""
    return signal**2 * correlation(name, np.sqrt((((a[:, None] - b[None]) / length) ** 2).sum(-1)))


def exact_gp(x, y, noise, xs, constant=20.0, **theta):
    """Mean (K, C), covariance (K, K) of the exact GP with kernel k + s_c²; noise: (N,) variances."""
    cross = covariance(x, xs, **theta) + constant**2
    gram = covariance(x, x, **theta) + constant**2 + np.diag(noise)
    solved = np.linalg.solve(gram, np.hstack([y, cross]))
    prior = covariance(xs, xs, **theta) + constant**2
    return cross.T @ solved[:, : y.shape[1]], prior - cross.T @ solved[:, y.shape[1] :]


def titsias(x, y, noise, z, xs, constant=20.0, **theta):
    """Batch SGPR (Titsias 2009, eq. 6): mean (K, C) and variance (K,). Inducing variables u = [w, g(z)], f = w + g.

    Σ = K_uu + K_uf Λ⁻¹ K_fu;  mean = K_*u Σ⁻¹ K_uf Λ⁻¹ y;  var = k_** − K_*u K_uu⁻¹ K_u* + K_*u Σ⁻¹ K_u*.
    """

    def with_w(points):  # K_u· = [s_c² 1ᵀ ; k(z, ·)]
        return np.vstack([np.full((1, len(points)), constant**2), covariance(z, points, **theta)])

    k_uu = np.zeros((len(z) + 1, len(z) + 1))
    k_uu[0, 0], k_uu[1:, 1:] = constant**2, covariance(z, z, **theta)
    k_uf, k_us = with_w(x), with_w(xs)
    sigma = k_uu + (k_uf / noise) @ k_uf.T
    mean = k_us.T @ np.linalg.solve(sigma, (k_uf / noise) @ y)
    spent = (k_us * np.linalg.solve(k_uu, k_us)).sum(0) - (k_us * np.linalg.solve(sigma, k_us)).sum(
        0
    )
    return mean, theta["signal"] ** 2 + constant**2 - spent


def titsias_by_qr(x, y, noise, z, xs, constant=20.0, **theta):
    """The same by least squares on [Λ^-½ K_fu L⁻ᵀ ; I]: keeps its digits where z lie close together."""
    root = np.linalg.cholesky(covariance(z, z, **theta))

    def white(points):
        inducing = solve_triangular(root, covariance(z, points, **theta), lower=True)
        return np.vstack([np.full((1, len(points)), constant), inducing])

    a, a_s = white(x), white(xs)
    stacked = np.vstack([(a / np.sqrt(noise)).T, np.eye(len(a))])
    q, r = np.linalg.qr(stacked)
    weights = solve_triangular(r, q[: len(x)].T @ (y / np.sqrt(noise)[:, None]))
    left = solve_triangular(r, a_s, trans=1)
    return a_s.T @ weights, theta["signal"] ** 2 + constant**2 - (a_s**2).sum(0) + (left**2).sum(0)


def drive(n: int, seed: int = 0, size: float = 3.0, channels: int = 1):
    """A wandering path x (n, 2) inside a square, and y (n, C): a smooth field about 48 plus white noise of sd 1."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0.0, n / 60.0, n)
    phase = rng.uniform(0, 2 * np.pi, 4)
    x = size / 2 * np.stack([1 + np.sin(1.3 * t + phase[0]), 1 + np.sin(1.9 * t + phase[1])], 1)
    x += rng.normal(0, 0.003, x.shape)
    field = [
        12 * np.sin(1.7 * x[:, 0] + phase[2] + c) * np.cos(1.3 * x[:, 1] + phase[3])
        for c in range(channels)
    ]
    return x, 48.0 + np.stack(field, 1) + rng.normal(0, 1, (n, channels))


def lattice(spacing: float, size: float = 3.0, margin: float = 0.0) -> np.ndarray:
    """(M, 2): a square lattice over the square of `drive`."""
    axis = np.arange(-margin, size + margin + 1e-9, spacing)
    return np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)


def samples(x, y, **columns) -> Samples:
    """Samples in SI from x in metres and y in microtesla; *_variance columns in microtesla²."""
    columns = {k: v * UT**2 if k.endswith("variance") else v for k, v in columns.items()}
    return Samples(x, np.asarray(y) * UT, **columns)


def feed(field, batch: Samples, size: int):
    """Stream a batch into a map in pieces; the reports."""
    return [field.update(batch[i : i + size]) for i in range(0, len(batch), size)]


def in_ut(prediction):
    """Mean (K, C) and variance (K, C) in microtesla, as arrays."""
    return prediction.mean.cpu().numpy() / UT, prediction.variance.cpu().numpy() / UT**2


def close(got, expected, tolerance: float, what: str = "") -> None:
    """|got − expected| ≤ tolerance · max |expected|, elementwise, and finite."""
    got, expected = (
        v.detach().cpu().numpy() if torch.is_tensor(v) else np.asarray(v) for v in (got, expected)
    )
    assert got.shape == expected.shape, f"{what}: shape {got.shape}, expected {expected.shape}"
    scale = np.abs(expected).max() or 1.0
    error = np.abs(got - expected).max() / scale
    assert error <= tolerance, f"{what}: relative error {error:.3g} exceeds {tolerance:.3g}"


def posterior_about(
    origin, inputs: int, theta: Theta, dtype=torch.float64, seed: int = 0, device="cpu"
) -> Posterior:
    """A posterior, given a field at 40 places within a metre of an origin (2,) m, on inducing inputs there."""
    generator = torch.Generator().manual_seed(seed)
    z, x = (torch.rand(n, 2, dtype=torch.float64, generator=generator) for n in (inputs, 40))
    y, noise = torch.sin(3.0 * x[:, :1]) * torch.cos(2.0 * x[:, 1:]), 0.01
    # more jitter than a map would have: rounding is not what is tested
    factor, _ = cholesky(theta.kernel()(z, z) + 0.01 * torch.eye(inputs, dtype=torch.float64))
    a = whiten(theta, z, factor, x)
    root, _ = cholesky(torch.eye(len(a), dtype=torch.float64) + a @ a.mT / noise)
    weights = torch.cholesky_solve(a @ y / noise, root)
    scaling = Scaling(torch.tensor(origin).double(), torch.tensor([4.0]).double(), 2.0)
    state = Posterior(theta, z, factor.to(dtype), root, weights, noise, scaling).state_dict()
    return Posterior.from_state_dict(state, device)
