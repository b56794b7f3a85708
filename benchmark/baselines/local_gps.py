"""Local GPs: Nguyen-Tuong, Seeger & Peters (2009), "Model learning with local Gaussian process regression"."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmark.baselines.kernel import Kernel
from benchmark.batch import UNIT, prediction
from gp_mapping.core.types import Prediction

__all__ = ["LocalGPs"]

_CHUNK = 2000
_NEAR = 4  # local models that predict at a place


class _Local:
    """An exact GP on at most `most` samples about its centre, their mean position."""

    def __init__(self, x: Tensor, y: Tensor):
        self.x, self.y, self.seen, self.centre, self.factor = x, y, len(x), x.mean(0), None

    def fit(self, kernel: Kernel, theta: Tensor) -> None:
        """K + σ²I = RRᵀ, the mean of y taken out."""
        self.mean = self.y.mean()
        noise = theta[2].exp() * torch.eye(len(self.x), dtype=theta.dtype)
        self.factor = torch.linalg.cholesky(kernel(self.x, self.x, theta) + noise)
        self.weights = torch.cholesky_solve(self.y - self.mean, self.factor)

    def predict(self, x: Tensor, kernel: Kernel, theta: Tensor) -> tuple[Tensor, Tensor]:
        k = kernel(self.x, x, theta)
        half = torch.linalg.solve_triangular(self.factor, k, upper=False)
        return (k.mT @ self.weights)[:, 0] + self.mean, kernel.variance(theta) - half.square().sum(
            0
        )


class LocalGPs:
    """w_k = exp(−|x − c_k|²/2ℓ_w²): a sample goes to the model of the largest w_k, or founds one where w_k < w_gen.

    mean* = Σ w_k m_k / Σ w_k over the nearest few; the paper has no variance: here it is the mixture's,
    Σ w_k (v_k + m_k²)/Σ w_k − mean*². A full model keeps a uniform sample of what it was given.
    """

    def __init__(
        self,
        theta: Tensor,
        *,
        most: int = 200,
        generate: float = 0.5,
        width: float | None = None,
        constant: float = 20.0,
        seed: int = 0,
    ):
        """most: samples in one model.  generate: w_gen.  width: ℓ_w, m; the lengthscale if None."""
        self.theta, self.kernel = theta, Kernel(constant, 0.0)
        self.most, self.generate, self.width = most, generate, width or float(theta[0].exp())
        self.generator, self.models = torch.Generator().manual_seed(seed), []

    def _weights(self, x: Tensor) -> Tensor:
        centres = torch.stack([m.centre for m in self.models])
        return torch.exp(-0.5 * torch.cdist(x, centres).square() / self.width**2)  # (N, K)

    def update(self, x: Tensor, y: Tensor) -> None:
        """Each sample into one model; those that changed are factored again."""
        for place, value in zip(x[:, None], y.reshape(-1, 1, 1) / UNIT):
            near = self._weights(place)[0].max(0) if self.models else None
            if near is None or near.values < self.generate:
                self.models.append(_Local(place, value))
            else:
                self._put(self.models[int(near.indices)], place, value)
        for model in self.models:
            if model.factor is None:
                model.fit(self.kernel, self.theta)

    def _put(self, model: _Local, x: Tensor, y: Tensor) -> None:
        model.centre = model.centre + (x[0] - model.centre) / (model.seen + 1)
        model.seen += 1
        slot = (
            len(model.x)
            if len(model.x) < self.most
            else int(torch.randint(model.seen, (1,), generator=self.generator))
        )
        if slot < self.most:
            model.x, model.y = (
                torch.cat([v[:slot], new, v[slot + 1 :]]) for v, new in ((model.x, x), (model.y, y))
            )
            model.factor = None

    def predict(self, x: Tensor, *_, **__) -> Prediction:
        """At x (N, D)."""
        parts = [self._mixture(part) for part in x.split(_CHUNK)]
        mean, variance = (torch.cat(v) for v in zip(*parts))
        return prediction(mean, variance, float(self.theta[2].exp()))

    def _mixture(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logs = self._weights(x).clamp_min(1e-300).log()
        best = logs.topk(min(_NEAR, len(self.models)), 1)
        weight = torch.zeros_like(logs).scatter(
            1, best.indices, (best.values - best.values[:, :1]).exp()
        )
        weight = weight / weight.sum(1, keepdim=True)
        mean, square = torch.zeros(len(x), dtype=x.dtype), torch.zeros(len(x), dtype=x.dtype)
        for k in weight.sum(0).nonzero()[:, 0].tolist():
            on = weight[:, k] > 0
            m, v = self.models[k].predict(x[on], self.kernel, self.theta)
            mean[on] += weight[on, k] * m
            square[on] += weight[on, k] * (v + m.square())
        return mean, square - mean.square()
