"""Batch models to judge the online ones by, written apart from gp_mapping: SGPR, and GPyTorch's exact GP.

Both have a Matérn-5/2 kernel, a constant mean (the training mean) and white noise; values in µT.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.cluster.vq import kmeans2
from torch import Tensor

from gp_mapping.core.types import Prediction, Samples

__all__ = ["SGPR", "GPyTorchExact", "kmeans_inputs"]

UNIT = 1e-6  # T
_CHUNK = 2000  # with 500 GPyTorch takes twice as long


def kmeans_inputs(x: Tensor, count: int, seed: int) -> Tensor:
    """(count, D) centres of k-means over at most 8000 of the positions."""
    rng = np.random.default_rng(seed)
    some = x.numpy()[rng.choice(len(x), min(len(x), 8000), replace=False)]
    return torch.from_numpy(kmeans2(some, count, iter=15, minit="++", seed=rng)[0])


def matern52(a: Tensor, b: Tensor, lengthscale: float) -> Tensor:
    """(1 + r + r²/3) exp(−r), r = √5 |a − b|/ℓ."""
    r = torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist") * (
        math.sqrt(5.0) / lengthscale
    )
    return (1.0 + r + r * r / 3.0) * torch.exp(-r)


def prediction(mean: Tensor, variance: Tensor, noise: float) -> Prediction:
    """µT → T."""
    noise_variance = torch.tensor([noise * UNIT**2], dtype=torch.float64)
    return Prediction(mean.reshape(-1, 1) * UNIT, variance.reshape(-1, 1) * UNIT**2, noise_variance)


class SGPR:
    """Titsias (2009): A = L⁻¹k(z, x)/σ, B = I + AAᵀ, mean = a*ᵀB⁻¹Ay/σ, variance = k** − |a*|² + a*ᵀB⁻¹a*."""

    def __init__(self, data: Samples, z: Tensor, lengthscale: float, signal: float, noise: float):
        """signal, noise: variances, µT²."""
        self.z, self.lengthscale, self.signal, self.noise = z, lengthscale, signal, noise
        self.centre = float(data.y.mean()) / UNIT
        k = signal * matern52(z, z, lengthscale)
        self.L = torch.linalg.cholesky(k + 1e-9 * signal * torch.eye(len(z), dtype=torch.float64))
        precision, linear = (
            torch.eye(len(z), dtype=torch.float64),
            torch.zeros((len(z), 1), dtype=torch.float64),
        )
        for x, y in zip(data.x.split(_CHUNK), data.y.split(_CHUNK)):
            a = self._white(x)
            precision += a @ a.mT / noise
            linear += a @ (y / UNIT - self.centre) / noise
        self.R = torch.linalg.cholesky(precision)
        self.weights = torch.cholesky_solve(linear, self.R)

    def _white(self, x: Tensor) -> Tensor:
        k = self.signal * matern52(self.z, x, self.lengthscale)
        return torch.linalg.solve_triangular(self.L, k, upper=False)

    def predict(self, x: Tensor, *_, **__) -> Prediction:
        """At x (N, 2) in metres; SI. How the robot moves makes no difference."""
        means, variances = [], []
        for part in x.split(_CHUNK):
            a = self._white(part)
            half = torch.linalg.solve_triangular(self.R, a, upper=False)
            means.append(a.mT @ self.weights)
            variances.append(self.signal - a.square().sum(0) + half.square().sum(0))
        return prediction(torch.cat(means) + self.centre, torch.cat(variances), self.noise)


class GPyTorchExact:
    """GPyTorch's exact GP on a random subsample, hyper-parameters given: the judge from outside."""

    def __init__(
        self, data: Samples, size: int, seed: int, lengthscale: float, signal: float, noise: float
    ):
        import gpytorch  # a test requirement, and slow to import

        generator = torch.Generator().manual_seed(seed)
        pick = torch.randperm(len(data), generator=generator)[:size]
        x, y = data.x[pick], data.y[pick, 0] / UNIT
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()

        class Model(gpytorch.models.ExactGP):
            def __init__(self):
                super().__init__(x, y, likelihood)
                self.mean_module = gpytorch.means.ConstantMean()
                self.covar_module = gpytorch.kernels.ScaleKernel(
                    gpytorch.kernels.MaternKernel(nu=2.5)
                )

            def forward(self, inputs):
                return gpytorch.distributions.MultivariateNormal(
                    self.mean_module(inputs), self.covar_module(inputs)
                )

        self.gpytorch, self.noise, self.model = gpytorch, noise, Model().double()
        self.model.mean_module.constant.data.fill_(float(y.mean()))
        self.model.covar_module.base_kernel.lengthscale = lengthscale
        self.model.covar_module.outputscale = signal
        likelihood.noise = noise
        self.model.eval()

    @torch.no_grad()
    def predict(self, x: Tensor, *_, **__) -> Prediction:
        """At x (N, 2) in metres; SI. Cholesky throughout, no conjugate gradients; motion is of no account."""
        means, variances = [], []
        s = self.gpytorch.settings
        with (
            s.fast_computations(False, False, False),
            s.max_cholesky_size(100000),
            s.fast_pred_var(False),
        ):
            for part in x.split(_CHUNK):
                out = self.model(part)
                means.append(out.mean)
                variances.append(out.variance)
        return prediction(torch.cat(means), torch.cat(variances), self.noise)
